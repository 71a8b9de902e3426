package stack_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/redrivehq/redrive/local/stack"
	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/dynamo"
)

const root = "../.." // of the repository

func read(t *testing.T) *stack.Template {
	t.Helper()
	template, err := stack.Read(filepath.Join(root, "template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// ref is CloudFormation's reference to a parameter or resource.
func ref(id string) map[string]any { return map[string]any{"Ref": id} }

func TestRoutesAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	want := map[string]string{"$default": api.Fallback}
	for _, r := range api.Routes {
		want[r.Key] = r.Function
	}
	got := map[string]string{}
	for _, f := range read(t).Functions {
		for _, route := range f.Routes {
			if other, twice := got[route]; twice {
				t.Errorf("route %s goes to %s and to %s", route, other, f.Name)
			}
			got[route] = f.Name
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-api.Routes +template.yaml):\n%s", diff)
	}
}

func TestEveryRouteAsksForASignature(t *testing.T) {
	t.Parallel()
	api := read(t).API
	want := map[string]any{"EnableIamAuthorizer": true, "DefaultAuthorizer": "AWS_IAM"}
	if diff := cmp.Diff(want, api.Auth); diff != "" {
		t.Errorf("Auth of the API (-want +got):\n%s", diff)
	}
	if len(api.Unsigned) > 0 {
		t.Errorf("routes %q have an authorizer of their own", api.Unsigned)
	}
	if diff := cmp.Diff(map[string]any{"Fn::GetAtt": "ApiLogs.Arn"}, api.AccessLog); diff != "" {
		t.Errorf("access log (-want +got):\n%s", diff)
	}
}

func TestFunctionsAreTheFolders(t *testing.T) {
	t.Parallel()
	mains, err := filepath.Glob(root + "/functions/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	var folders, functions []string
	for _, file := range mains {
		folders = append(folders, filepath.Base(filepath.Dir(file)))
	}
	for _, f := range read(t).Functions {
		functions = append(functions, f.Name)
	}
	if diff := cmp.Diff(folders, functions); diff != "" {
		t.Errorf("functions (-functions/ +template.yaml):\n%s", diff)
	}
}

func TestSettingsOfFunctions(t *testing.T) {
	t.Parallel()
	template := read(t)
	logGroups := map[string]string{}
	for _, f := range template.Functions {
		s := f.Settings
		got := []any{s.Handler, s.Runtime, s.CodeURI, s.Architectures, s.Tracing, s.LoggingConfig.LogFormat}
		want := []any{"bootstrap", "provided.al2023", ".", []any{ref("Architecture")}, "Active", "JSON"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("settings of %s (-want +got):\n%s", f.ID, diff)
		}
		// API Gateway gives up after 30 s, and the next sweep begins after 60 s.
		most := 29
		if f.Schedule != nil {
			most = 59
		}
		least := 1
		if f.Name == "sweep" {
			least = 30 // it takes up no queue in its last ten
		}
		if s.Timeout < least || s.Timeout > most || s.MemorySize < 128 {
			t.Errorf("%s has %d s and %d MB, want %d to %d s and at least 128 MB",
				f.ID, s.Timeout, s.MemorySize, least, most)
		}
		group, _ := s.LoggingConfig.LogGroup["Ref"].(string)
		if other, twice := logGroups[group]; twice {
			t.Errorf("%s and %s have the same log group", f.ID, other)
		}
		logGroups[group] = f.ID
		// Above all no reserved concurrency, of which a new account has none to give.
		for _, other := range s.Others {
			if !slices.Contains([]string{"Description", "Events", "Policies"}, other) {
				t.Errorf("%s sets %s, which this test knows nothing of", f.ID, other)
			}
		}
		if _, ok := template.LogGroups[group]; !ok {
			t.Errorf("%s has no log group of its own", f.ID)
		}
	}
	for id, group := range template.LogGroups {
		if diff := cmp.Diff(any(ref("LogRetentionDays")), group.Retention); diff != "" {
			t.Errorf("retention of %s (-want +got):\n%s", id, diff)
		}
	}
}

func TestOnlyTheSweepHasASchedule(t *testing.T) {
	t.Parallel()
	once := map[string]any{"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
	for _, f := range read(t).Functions {
		var want *stack.Schedule
		var wantInvoke map[string]any
		if f.Name == "sweep" {
			// Without OmitName, two stacks in one account have schedules of one name.
			want = &stack.Schedule{OmitName: true, ScheduleExpression: "rate(1 minute)", RetryPolicy: once}
			wantInvoke = once
		}
		if diff := cmp.Diff(want, f.Schedule); diff != "" {
			t.Errorf("schedule of %s (-want +got):\n%s", f.ID, diff)
		}
		if diff := cmp.Diff(wantInvoke, f.Settings.EventInvokeConfig); diff != "" {
			t.Errorf("invocations of %s (-want +got):\n%s", f.ID, diff)
		}
	}
}

// S114 of CASES.md: SAM drops what the template does not declare.
func TestEveryVariableIsDeclared(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	for _, f := range read(t).Functions {
		// Empty is unset for the SDK; it is there for sam local to fill.
		want := map[string]any{"AWS_ENDPOINT_URL_DYNAMODB": ""}
		if len(f.Grants) > 0 {
			want["REDRIVE_TABLE"] = ref("Table")
		}
		if diff := cmp.Diff(want, f.Settings.Environment.Variables); diff != "" {
			t.Errorf("variables of %s (-want +got):\n%s", f.ID, diff)
		}
		for name := range f.Settings.Environment.Variables {
			declared[name] = true
		}
	}
	for _, name := range variablesRead(t) {
		// Lambda and SAM set the others themselves.
		if own := strings.HasPrefix(name, "REDRIVE_") || strings.HasPrefix(name, "AWS_ENDPOINT"); own && !declared[name] {
			t.Errorf("the functions read %s, which template.yaml does not declare", name)
		}
	}
	for name := range localVariables(t) {
		if !declared[name] {
			t.Errorf("local/env.json sets %s, which template.yaml does not declare", name)
		}
	}
}

// variablesRead returns every name of a variable that a text in the functions, or
// in what sets them up, speaks of.
func variablesRead(t *testing.T) []string {
	t.Helper()
	variable := regexp.MustCompile(`\b(REDRIVE|AWS)_[A-Z0-9_]+\b`)
	var names []string
	for _, pattern := range []string{"/functions/*/*.go", "/shared/setup/*.go"} {
		files, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
					names = append(names, variable.FindAllString(text.Value, -1)...)
				}
				return true
			})
		}
	}
	if !slices.Contains(names, "REDRIVE_TABLE") {
		t.Error("the functions do not read REDRIVE_TABLE: does this test look in the right place?")
	}
	return names
}

func localVariables(t *testing.T) map[string]string {
	t.Helper()
	var env struct{ Parameters map[string]string }
	if err := json.Unmarshal(file(t, "local/env.json"), &env); err != nil {
		t.Fatal(err)
	}
	return env.Parameters
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// S115 of CASES.md: the engine has one name in the files that speak of it.
func TestContainersReachTheEngineOfTheComposeFile(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			Command  string   `yaml:"command"`
			Ports    []string `yaml:"ports"`
			Networks []string `yaml:"networks"`
		} `yaml:"services"`
		Networks map[string]struct {
			Name string `yaml:"name"`
		} `yaml:"networks"`
	}
	if err := yaml.Unmarshal(file(t, "local/compose.yaml"), &compose); err != nil {
		t.Fatal(err)
	}
	engine, ok := compose.Services["dynamodb"]
	if !ok || len(engine.Networks) != 1 || len(engine.Ports) != 1 {
		t.Fatalf("services = %+v, want dynamodb with one network and one port", compose.Services)
	}
	if got, want := localVariables(t)["AWS_ENDPOINT_URL_DYNAMODB"], "http://dynamodb:8000"; got != want {
		t.Errorf("local/env.json: endpoint is %s, want the service at %s", got, want)
	}
	if got, want := engine.Ports[0], "127.0.0.1:8000:8000"; got != want {
		t.Errorf("ports = %s, want %s: nobody else is to reach it", got, want)
	}
	// S116: else each access key and region has tables of its own.
	if !strings.Contains(engine.Command, "-sharedDb") {
		t.Errorf("command = %s, want one with -sharedDb", engine.Command)
	}
	want := `docker_network = "` + compose.Networks[engine.Networks[0]].Name + `"`
	if got := strings.Count(string(file(t, "samconfig.toml")), want); got != 2 {
		t.Errorf("samconfig.toml has %q %d times, want it for start-api and for invoke", want, got)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	// What each function really calls is compared elsewhere, as it runs. stack.Read
	// refuses wildcards, and resources other than the table and its index.
	for _, f := range read(t).Functions {
		seen := map[stack.Grant]bool{}
		for _, g := range f.Grants {
			if seen[g] {
				t.Errorf("%s is allowed %v twice", f.ID, g)
			}
			seen[g] = true
			if g.On == stack.OnIndex && g.Action != "dynamodb:Query" {
				t.Errorf("%s is allowed %s on the index, where only Query works", f.ID, g.Action)
			}
		}
		if none := len(f.Grants) == 0; none != (f.Name == api.Fallback) {
			t.Errorf("%s is allowed %v", f.ID, f.Grants)
		}
	}
}

// The table is the one that the code makes on a laptop, and what only a deployed
// one has.
func TestTable(t *testing.T) {
	t.Parallel()
	made := dynamo.Definition("")
	want := stack.Table{
		BillingMode: string(made.BillingMode), AttributeTypes: make(map[string]string), Key: keyOf(made.KeySchema),
		TTLAttribute:   *dynamo.TimeToLive("").TimeToLiveSpecification.AttributeName,
		StreamViewType: "NEW_IMAGE", Recovery: true, Protected: true, AccountKey: true,
		OnDelete: "Retain", OnReplace: "Retain",
	}
	for _, a := range made.AttributeDefinitions {
		want.AttributeTypes[*a.AttributeName] = string(a.AttributeType)
	}
	for _, i := range made.GlobalSecondaryIndexes {
		want.Indexes = append(want.Indexes, stack.Index{
			Name: *i.IndexName, Key: keyOf(i.KeySchema), Projection: string(i.Projection.ProjectionType),
		})
	}
	if diff := cmp.Diff(want, read(t).Table); diff != "" {
		t.Errorf("table (-code +template):\n%s", diff)
	}
}

func keyOf(schema []types.KeySchemaElement) stack.Key {
	var k stack.Key
	for _, e := range schema {
		if e.KeyType == types.KeyTypeHash {
			k.Hash = *e.AttributeName
		} else {
			k.Range = *e.AttributeName
		}
	}
	return k
}

func TestEveryAlarmSaysWhatToDoAndTells(t *testing.T) {
	t.Parallel()
	template := read(t)
	actions := any(map[string]any{"Fn::If": []any{"HasAlarmTopic", []any{ref("AlarmTopicArn")}, ref("AWS::NoValue")}})
	own := map[string]string{} // alarms by the metric of our own
	for id, alarm := range template.Alarms {
		if len(strings.Split(strings.TrimSuffix(alarm.Description, "."), ". ")) < 2 {
			t.Errorf("%s: description %q does not say what it means and what to do", id, alarm.Description)
		}
		if diff := cmp.Diff([]any{actions, actions}, []any{alarm.Actions, alarm.OKActions}); diff != "" {
			t.Errorf("actions of %s (-want +got):\n%s", id, diff)
		}
		if n := len(alarm.Metrics); n < 1 || n > 10 { // CloudWatch takes no more
			t.Errorf("%s looks at %d metrics, want 1 to 10", id, n)
		}
		for _, m := range alarm.Metrics {
			if m.Namespace != "Redrive" {
				continue
			}
			own[m.Name] = alarm.TreatMissingData
			if diff := cmp.Diff(map[string]any{"Table": ref("Table")}, m.Dimensions); diff != "" {
				t.Errorf("dimensions of %s in %s (-want +got):\n%s", m.Name, id, diff)
			}
		}
	}
	want := map[string]string{"SweepRuns": "breaching", "DeadMessages": "ignore", "OldestDeadSeconds": "ignore"}
	if diff := cmp.Diff(want, own); diff != "" {
		t.Errorf("alarms on metrics of our own (-want +got):\n%s", diff)
	}
}

func TestEveryFunctionHasItsAlarms(t *testing.T) {
	t.Parallel()
	template := read(t)
	watched := map[[2]string]int{} // metric and function
	others := map[string]int{}
	for _, alarm := range template.Alarms {
		for _, m := range alarm.Metrics {
			if f, ok := m.Dimensions["FunctionName"].(map[string]any); ok && m.Namespace == "AWS/Lambda" {
				id, _ := f["Ref"].(string)
				watched[[2]string{m.Name, id}]++
			} else if m.Namespace != "Redrive" {
				others[m.Namespace+" "+m.Name]++
			}
		}
	}
	want := map[[2]string]int{}
	for _, f := range template.Functions {
		want[[2]string{"Errors", f.ID}]++
		want[[2]string{"Throttles", f.ID}]++
	}
	if diff := cmp.Diff(want, watched); diff != "" {
		t.Errorf("alarms on functions (-want +got):\n%s", diff)
	}
	// The table's throttles are counted apart from its index's.
	wantOthers := map[string]int{
		"AWS/ApiGateway 5xx": 1, "AWS/ApiGateway Count": 1,
		"AWS/DynamoDB ReadThrottleEvents": 2, "AWS/DynamoDB WriteThrottleEvents": 2,
	}
	if diff := cmp.Diff(wantOthers, others); diff != "" {
		t.Errorf("other metrics with an alarm (-want +got):\n%s", diff)
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	want := []string{"ApiUrl", "TableName", "TableArn", "SweepFunctionName"}
	if diff := cmp.Diff(want, read(t).Outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}
