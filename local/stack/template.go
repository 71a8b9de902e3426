// Package stack reads template.yaml, so that tests can compare what is deployed
// with the code. It knows the shapes that the template uses, and fails on others
// rather than pass over them.
package stack

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Template is what template.yaml says, globals merged into each function.
type Template struct {
	Functions []Function // by name
	Table     Table
	API       API
	Alarms    map[string]Alarm // by logical id
	LogGroups map[string]LogGroup
	Outputs   []string // names, in order
}

// Function is a Lambda function.
type Function struct {
	ID       string // logical id: EnqueueFunction
	Name     string // its folder below functions/: enqueue
	Routes   []string
	Schedule *Schedule
	Grants   []Grant // what its policies allow, in order
	Settings Settings
}

// Settings are the properties of a function that are taken as they stand. An
// intrinsic function of CloudFormation stands in its long form: {"Ref": "Table"}.
type Settings struct {
	Handler       string `yaml:"Handler"`
	Runtime       string `yaml:"Runtime"`
	CodeURI       string `yaml:"CodeUri"`
	Architectures any    `yaml:"Architectures"`
	Timeout       int    `yaml:"Timeout"`
	MemorySize    int    `yaml:"MemorySize"`
	Tracing       string `yaml:"Tracing"`
	Environment   struct {
		Variables map[string]any `yaml:"Variables"`
	} `yaml:"Environment"`
	LoggingConfig struct {
		LogFormat string         `yaml:"LogFormat"`
		LogGroup  map[string]any `yaml:"LogGroup"`
	} `yaml:"LoggingConfig"`
	EventInvokeConfig map[string]any `yaml:"EventInvokeConfig"`
	// Others are the names of all properties but the ones above.
	Others []string `yaml:"-"`
}

// Schedule is what starts a function by the clock.
type Schedule struct {
	OmitName           bool           `yaml:"OmitName"`
	ScheduleExpression string         `yaml:"ScheduleExpression"`
	RetryPolicy        map[string]any `yaml:"RetryPolicy"`
}

// Grant lets a function do one thing.
type Grant struct {
	Action string // dynamodb:GetItem
	On     Resource
}

// Resource is what a grant is about.
type Resource string

// The resources there are.
const (
	OnTable Resource = "table"
	OnIndex Resource = "index"
)

// Table is the definition of the table, with the fields of CreateTable.
type Table struct {
	BillingMode    string
	AttributeTypes map[string]string // S, N or B by name
	Key            Key
	Indexes        []Index
	StreamViewType string
	TTLAttribute   string // empty if not enabled
	Recovery       bool   // to a point in time
	Protected      bool   // against deletion
	OnDelete       string // of the stack: Retain
	OnReplace      string
	OwnName        bool // rather than one that CloudFormation makes up
	AccountKey     bool // encrypted with a key of the account, not one of AWS's own
}

// Key names the attributes of a key.
type Key struct{ Hash, Range string }

// Index is a global secondary index.
type Index struct {
	Name       string
	Key        Key
	Projection string
}

// API is the HTTP API.
type API struct {
	Auth map[string]any
	// Unsigned are the routes with an authorizer of their own or none.
	Unsigned  []string
	AccessLog any // the log group
}

// Alarm is a CloudWatch alarm.
type Alarm struct {
	Description, TreatMissingData string
	Actions, OKActions            any
	Metrics                       []Metric // not the expression
}

// Metric is one that an alarm looks at.
type Metric struct {
	Namespace  string
	Name       string
	Dimensions map[string]any
}

// LogGroup is a CloudWatch log group.
type LogGroup struct{ Retention any }

// Read reads the template.
func Read(file string) (*Template, error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	lengthen(&root)
	var doc document
	if err := root.Decode(&doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t := &Template{Alarms: map[string]Alarm{}, LogGroups: map[string]LogGroup{}}
	for pair := range slices.Chunk(doc.Outputs.Content, 2) {
		t.Outputs = append(t.Outputs, pair[0].Value)
	}
	for _, id := range slices.Sorted(maps.Keys(doc.Resources)) {
		if err := t.add(id, doc.Resources[id], &doc.Globals.Function); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, id, err)
		}
	}
	slices.SortFunc(t.Functions, func(a, b Function) int { return cmp.Compare(a.Name, b.Name) })
	return t, nil
}

// Function returns the function of that name.
func (t *Template) Function(name string) (Function, bool) {
	i := slices.IndexFunc(t.Functions, func(f Function) bool { return f.Name == name })
	if i < 0 {
		return Function{}, false
	}
	return t.Functions[i], true
}

type document struct {
	Globals struct {
		Function yaml.Node `yaml:"Function"`
	} `yaml:"Globals"`
	Resources map[string]resource `yaml:"Resources"`
	Outputs   yaml.Node           `yaml:"Outputs"`
}

type resource struct {
	Type           string         `yaml:"Type"`
	Metadata       map[string]any `yaml:"Metadata"`
	Properties     yaml.Node      `yaml:"Properties"`
	DeletionPolicy string         `yaml:"DeletionPolicy"`
	UpdatePolicy   string         `yaml:"UpdateReplacePolicy"`
}

func (t *Template) add(id string, r resource, globals *yaml.Node) error {
	switch r.Type {
	case "AWS::Serverless::Function":
		return t.addFunction(id, r, globals)
	case "AWS::Serverless::HttpApi":
		return t.addAPI(r)
	case "AWS::DynamoDB::Table":
		return t.addTable(r)
	case "AWS::CloudWatch::Alarm":
		return t.addAlarm(id, r)
	case "AWS::Logs::LogGroup":
		var p struct {
			RetentionInDays any `yaml:"RetentionInDays"`
		}
		err := r.Properties.Decode(&p)
		t.LogGroups[id] = LogGroup{Retention: p.RetentionInDays}
		return err
	}
	return errors.New("unknown type " + r.Type)
}

// lengthen writes CloudFormation's short tags in their long form: !Ref Table
// becomes {Ref: Table}, !Sub text {"Fn::Sub": text}.
func lengthen(node *yaml.Node) {
	for _, child := range node.Content {
		lengthen(child)
	}
	name, short := strings.CutPrefix(node.Tag, "!")
	if !short || strings.HasPrefix(name, "!") {
		return
	}
	if name != "Ref" && name != "Condition" {
		name = "Fn::" + name
	}
	value := *node
	value.Tag = ""
	if node.Kind == yaml.ScalarNode {
		value.Tag = "!!str"
	}
	*node = yaml.Node{
		Kind: yaml.MappingNode, Tag: "!!map", Line: node.Line,
		Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, &value},
	}
}
