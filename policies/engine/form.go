// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// form reads the fields of an object that a policy wrote, and keeps the first
// fault.
type form struct {
	fields map[string]any
	// wrong is the fault; empty where there is none.
	wrong string
}

// texts are strings of one kind, as a pattern and in words.
type texts struct {
	pattern *regexp.Regexp
	words   string
}

var (
	anyText        = texts{regexp.MustCompile(`(?s)^.{0,1000}$`), "a string of at most 1000 characters"}
	definitionName = texts{
		regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?){1,8}$`),
		"the name of a custom resource definition, such as queues.scheduling.run.ai",
	}
	version     = texts{regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`), "a version, such as v1beta2"}
	apiVersion  = texts{regexp.MustCompile(`^([a-z0-9][-.a-z0-9]{0,252}/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`), "an API version, such as v1 or kai.scheduler/v1"}
	objectKind  = texts{regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`), "a kind, such as ConfigMap"}
	namespace   = texts{regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`), "the name of a namespace"}
	objectName  = texts{regexp.MustCompile(`^[^\x00-\x1f]{1,253}$`), "the name of an object"}
	settingName = texts{regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`), "a name of letters and digits, such as queueLabelKey"}
)

func (f *form) has(name string) bool {
	_, ok := f.fields[name]
	return ok
}

func (f *form) fault(format string, args ...any) {
	if f.wrong == "" {
		f.wrong = fmt.Sprintf(format, args...)
	}
}

// only says which fields there are.
func (f *form) only(allowed ...string) {
	for _, name := range slices.Sorted(maps.Keys(f.fields)) {
		if !slices.Contains(allowed, name) {
			f.fault("has the field %s; %s are allowed", shown(name), strings.Join(allowed, ", "))
		}
	}
}

// text is a field that must be there.
func (f *form) text(name string, of texts) string {
	if !f.has(name) {
		f.fault("has no %s", name)
		return ""
	}
	text, ok := f.fields[name].(string)
	if !ok || !of.pattern.MatchString(text) {
		f.fault("%s must be %s, and is %s", name, of.words, shown(f.fields[name]))
		return ""
	}
	return text
}

// maybe is a text that may be left out.
func (f *form) maybe(name string, of texts) string {
	if !f.has(name) {
		return ""
	}
	return f.text(name, of)
}

func (f *form) flag(name string) bool {
	value, ok := f.fields[name].(bool)
	if f.has(name) && !ok {
		f.fault("%s must be true or false, and is %s", name, shown(f.fields[name]))
	}
	return value
}

// fix is what people are told to do.
func (f *form) fix() string {
	fix := line(f.text("fix", anyText))
	if f.wrong == "" && strings.TrimSpace(fix) == "" {
		f.fault("fix is empty; say what to do where it is missing")
	}
	return fix
}

// place is a Setting.
func (f *form) place(name string) *Setting {
	fields, ok := f.fields[name].(map[string]any)
	if !ok {
		f.fault("%s must be an object of apiVersion, kind, namespace, name and path, and is %s", name, shown(f.fields[name]))
		return nil
	}
	in := &form{fields: fields}
	in.only("apiVersion", "kind", "namespace", "name", "path")
	s := &Setting{
		APIVersion: in.text("apiVersion", apiVersion),
		Kind:       in.text("kind", objectKind),
		Namespace:  in.maybe("namespace", namespace),
		Name:       in.text("name", objectName),
		Path:       in.steps("path"),
	}
	if wrong := content.IsPathSegmentName(s.Name); len(wrong) > 0 {
		in.fault("name %s", wrong[0])
	}
	// What is found may be shown to everybody.
	if s.APIVersion == "v1" && s.Kind == "Secret" {
		in.fault("kind must not be Secret: a setting is shown to everybody")
	}
	if in.wrong != "" {
		f.fault("%s: %s", name, in.wrong)
	}
	return s
}

// steps is a path of keys.
func (f *form) steps(name string) []string {
	list, ok := f.fields[name].([]any)
	if !ok || len(list) == 0 || len(list) > maxSteps {
		f.fault(`%s must be an array of 1 to %d keys, as in ["data", "config.yaml", "fairSharing"], and is %s`, name, maxSteps, shown(f.fields[name]))
		return nil
	}
	steps := make([]string, len(list))
	for i, step := range list {
		if steps[i], ok = step.(string); !ok || steps[i] == "" {
			f.fault("%s[%d] must be a key or, in quotes, an index, and is %s", name, i, shown(step))
		}
	}
	return steps
}

// shown is a value as its author knows it, not too long.
func shown(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%T", value)
	}
	return capText(string(raw), 80)
}
