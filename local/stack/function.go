package stack

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// function is what is read of a function beside its settings.
type function struct {
	Events   map[string]event `yaml:"Events"`
	Policies []policy         `yaml:"Policies"`
}

type event struct {
	Type       string    `yaml:"Type"`
	Properties yaml.Node `yaml:"Properties"`
}

type policy struct {
	Statement []struct {
		Sid      string   `yaml:"Sid"`
		Effect   string   `yaml:"Effect"`
		Action   []string `yaml:"Action"`
		Resource any      `yaml:"Resource"`
	} `yaml:"Statement"`
}

func (t *Template) addFunction(id string, r resource, globals *yaml.Node) error {
	name, ok := strings.CutSuffix(id, "Function")
	if !ok {
		return errors.New("its logical id does not end in Function, so that make cannot tell what to build")
	}
	f := Function{ID: id, Name: strings.ToLower(name)}
	if r.Metadata["BuildMethod"] != "makefile" {
		return errors.New("it is not built by the Makefile")
	}
	var own function
	// The second one goes on top of the first, as in SAM.
	if err := errors.Join(globals.Decode(&f.Settings), r.Properties.Decode(&f.Settings),
		r.Properties.Decode(&own)); err != nil {
		return err
	}
	f.Settings.Others = slices.Concat(others(globals, f.Settings), others(&r.Properties, f.Settings))
	var err error
	if f.Grants, err = grants(own.Policies); err != nil {
		return err
	}
	for name, e := range own.Events {
		if err := t.addEvent(&f, e); err != nil {
			return fmt.Errorf("event %s: %w", name, err)
		}
	}
	slices.Sort(f.Routes)
	t.Functions = append(t.Functions, f)
	return nil
}

// others returns the names of the properties that are no settings.
func others(properties *yaml.Node, s Settings) []string {
	var names []string
	for i := 0; i < len(properties.Content); i += 2 {
		name := properties.Content[i].Value
		isOne := false
		for field := range reflect.TypeOf(s).Fields() {
			isOne = isOne || field.Tag.Get("yaml") == name
		}
		if !isOne {
			names = append(names, name)
		}
	}
	return names
}

func (t *Template) addEvent(f *Function, e event) error {
	switch e.Type {
	case "HttpApi":
		var p struct {
			Method string `yaml:"Method"`
			Path   string `yaml:"Path"`
			Auth   any    `yaml:"Auth"`
		}
		if err := e.Properties.Decode(&p); err != nil {
			return err
		}
		route := "$default"
		if p.Path != "" {
			route = p.Method + " " + p.Path
		}
		if p.Auth != nil {
			t.API.Unsigned = append(t.API.Unsigned, route)
		}
		f.Routes = append(f.Routes, route)
	case "ScheduleV2":
		f.Schedule = new(Schedule)
		return e.Properties.Decode(f.Schedule)
	default:
		return errors.New("unknown type " + e.Type)
	}
	return nil
}

// grants lists what the policies allow. Each statement is about the table or
// about its index, and names its actions one by one.
func grants(policies []policy) ([]Grant, error) {
	var all []Grant
	for _, p := range policies {
		for _, s := range p.Statement {
			on, ok := resourceOf(s.Resource)
			if !ok || s.Effect != "Allow" {
				return nil, fmt.Errorf("policy %s is not one that allows something on the table or its index", s.Sid)
			}
			for _, action := range s.Action {
				if !strings.HasPrefix(action, "dynamodb:") || strings.Contains(action, "*") {
					return nil, fmt.Errorf("policy %s allows %s", s.Sid, action)
				}
				all = append(all, Grant{action, on})
			}
		}
	}
	slices.SortFunc(all, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(b.On, a.On), cmp.Compare(a.Action, b.Action))
	})
	return all, nil
}

func resourceOf(arn any) (on Resource, ok bool) {
	intrinsic, _ := arn.(map[string]any)
	switch {
	case intrinsic["Fn::GetAtt"] == "Table.Arn":
		return OnTable, true
	case intrinsic["Fn::Sub"] == "${Table.Arn}/index/queue-status-retry_after":
		return OnIndex, true
	}
	return "", false
}
