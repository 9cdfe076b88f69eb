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

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Requirement is what a policy needs of the cluster, or what it wants to know of
// it. One of CRD and Setting is set.
type Requirement struct {
	// Policy is the policy's name.
	Policy string
	// CRD is the name of a custom resource definition, and Version the version of it
	// that must be served; empty is any.
	CRD, Version string
	// Setting is a place in an object.
	Setting *Setting
	// Is is what must stand there, where HasIs is set; else anything must. Of a list
	// it must be among the rest. It is JSON, with int64 for integers.
	Is    any
	HasIs bool
	// Optional: where nobody can look, since the definition, the object or its kind
	// is not there, nothing is missing.
	Optional bool
	// As is the name under which policies want to know the text at the setting's
	// place, and Default what they are told where there is none. Nothing is then
	// required.
	As, Default string
	// Fix is what to do where it is missing; empty with As alone.
	Fix string
}

// Setting is a place in an object of the cluster.
type Setting struct {
	// APIVersion and Kind, Namespace and Name are the object's. Namespace is empty
	// where its kind has none.
	APIVersion, Kind, Namespace, Name string
	// Path are the keys to the place. Where it leads on below a string, that is read
	// as YAML; in a list a step is an index.
	Path []string
}

const (
	// maxRequirements is how many elements requires may have, maxSteps how many keys a
	// path has: they are looked for again and again.
	maxRequirements = 100
	maxPathKeys     = 32
)

// parseRequirements reads the value of requires.
func (n *converter) parseRequirements(policy string, value ast.Value) ([]Requirement, error) {
	elements, err := setElements(value)
	if err != nil {
		return nil, err
	}
	if len(elements) > maxRequirements {
		return nil, newValueError("has %d elements; %d are allowed", len(elements), maxRequirements)
	}
	var all []Requirement
	named := make(map[string]bool)
	for _, element := range elements {
		needed, err := n.parseRequirement(element.Value)
		if err != nil {
			return nil, err
		}
		if needed.As != "" && named[needed.As] {
			return nil, newValueError("has as %s twice; each setting has a name of its own", needed.As)
		}
		named[needed.As] = needed.As != ""
		needed.Policy = policy
		all = append(all, needed)
	}
	return all, nil
}

// parseRequirement reads one element, in one of its three forms.
func (n *converter) parseRequirement(value ast.Value) (Requirement, error) {
	object, ok := value.(ast.Object)
	if !ok {
		return Requirement{}, newValueError("must be objects, with crd or setting, and one is %s", ast.ValueName(value))
	}
	fields, err := n.object(object, 0)
	if err != nil {
		return Requirement{}, err
	}
	f := &fieldReader{fields: fields}
	var r Requirement
	switch {
	case f.has("crd") == f.has("setting"):
		f.fail("needs either crd or setting")
	case f.has("crd"):
		f.allowOnly("crd", "version", "optional", "fix")
		r.CRD = f.requiredString("crd", crdNameFormat)
		r.Version = f.optionalString("version", versionFormat)
		r.Optional = f.boolean("optional")
		r.Fix = f.fixText()
	case f.has("as"):
		f.allowOnly("setting", "as", "default", "fix")
		r.Setting = f.setting("setting")
		r.As = f.requiredString("as", settingNameFormat)
		r.Default = f.requiredString("default", anyStringFormat)
		if f.has("fix") {
			r.Fix = f.fixText()
		}
	default:
		f.allowOnly("setting", "is", "optional", "fix")
		r.Setting = f.setting("setting")
		r.Is, r.HasIs = fields["is"], f.has("is")
		r.Optional = f.boolean("optional")
		r.Fix = f.fixText()
	}
	if f.problem != "" {
		return Requirement{}, newValueError("%s", f.problem)
	}
	return r, nil
}

// fieldReader reads the fields of an object that a policy wrote, and keeps the first
// fault.
type fieldReader struct {
	fields map[string]any
	// problem is the fault; empty where there is none.
	problem string
}

// stringFormat are strings of one kind, as a pattern and in words.
type stringFormat struct {
	pattern     *regexp.Regexp
	description string
}

var (
	anyStringFormat = stringFormat{regexp.MustCompile(`(?s)^.{0,1000}$`), "a string of at most 1000 characters"}
	crdNameFormat   = stringFormat{
		regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?){1,8}$`),
		"the name of a custom resource definition, such as queues.scheduling.run.ai",
	}
	versionFormat     = stringFormat{regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`), "a version, such as v1beta2"}
	apiVersionFormat  = stringFormat{regexp.MustCompile(`^([a-z0-9][-.a-z0-9]{0,252}/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`), "an API version, such as v1 or kai.scheduler/v1"}
	kindFormat        = stringFormat{regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`), "a kind, such as ConfigMap"}
	namespaceFormat   = stringFormat{regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`), "the name of a namespace"}
	objectNameFormat  = stringFormat{regexp.MustCompile(`^[^\x00-\x1f]{1,253}$`), "the name of an object"}
	settingNameFormat = stringFormat{regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`), "a name of letters and digits, such as queueLabelKey"}
)

func (f *fieldReader) has(name string) bool {
	_, ok := f.fields[name]
	return ok
}

func (f *fieldReader) fail(format string, args ...any) {
	if f.problem == "" {
		f.problem = fmt.Sprintf(format, args...)
	}
}

// allowOnly says which fields there are.
func (f *fieldReader) allowOnly(allowed ...string) {
	for _, name := range slices.Sorted(maps.Keys(f.fields)) {
		if !slices.Contains(allowed, name) {
			f.fail("has the field %s; %s are allowed", abbreviateJSON(name), strings.Join(allowed, ", "))
		}
	}
}

// requiredString is a field that must be there.
func (f *fieldReader) requiredString(name string, of stringFormat) string {
	if !f.has(name) {
		f.fail("has no %s", name)
		return ""
	}
	text, ok := f.fields[name].(string)
	if !ok || !of.pattern.MatchString(text) {
		f.fail("%s must be %s, and is %s", name, of.description, abbreviateJSON(f.fields[name]))
		return ""
	}
	return text
}

// optionalString is a text that may be left out.
func (f *fieldReader) optionalString(name string, of stringFormat) string {
	if !f.has(name) {
		return ""
	}
	return f.requiredString(name, of)
}

func (f *fieldReader) boolean(name string) bool {
	value, ok := f.fields[name].(bool)
	if f.has(name) && !ok {
		f.fail("%s must be true or false, and is %s", name, abbreviateJSON(f.fields[name]))
	}
	return value
}

// fixText is what people are told to do.
func (f *fieldReader) fixText() string {
	fix := singleLine(f.requiredString("fix", anyStringFormat))
	if f.problem == "" && strings.TrimSpace(fix) == "" {
		f.fail("fix is empty; say what to do where it is missing")
	}
	return fix
}

// setting is a Setting.
func (f *fieldReader) setting(name string) *Setting {
	fields, ok := f.fields[name].(map[string]any)
	if !ok {
		f.fail("%s must be an object of apiVersion, kind, namespace, name and path, and is %s", name, abbreviateJSON(f.fields[name]))
		return nil
	}
	in := &fieldReader{fields: fields}
	in.allowOnly("apiVersion", "kind", "namespace", "name", "path")
	s := &Setting{
		APIVersion: in.requiredString("apiVersion", apiVersionFormat),
		Kind:       in.requiredString("kind", kindFormat),
		Namespace:  in.optionalString("namespace", namespaceFormat),
		Name:       in.requiredString("name", objectNameFormat),
		Path:       in.keyPath("path"),
	}
	if wrong := content.IsPathSegmentName(s.Name); len(wrong) > 0 {
		in.fail("name %s", wrong[0])
	}
	// What is found may be shown to everybody.
	if s.APIVersion == "v1" && s.Kind == "Secret" {
		in.fail("kind must not be Secret: a setting is shown to everybody")
	}
	if in.problem != "" {
		f.fail("%s: %s", name, in.problem)
	}
	return s
}

// keyPath is a path of keys.
func (f *fieldReader) keyPath(name string) []string {
	list, ok := f.fields[name].([]any)
	if !ok || len(list) == 0 || len(list) > maxPathKeys {
		f.fail(`%s must be an array of 1 to %d keys, as in ["data", "config.yaml", "fairSharing"], and is %s`, name, maxPathKeys, abbreviateJSON(f.fields[name]))
		return nil
	}
	steps := make([]string, len(list))
	for i, step := range list {
		if steps[i], ok = step.(string); !ok || steps[i] == "" {
			f.fail("%s[%d] must be a key or, in quotes, an index, and is %s", name, i, abbreviateJSON(step))
		}
	}
	return steps
}

// abbreviateJSON is a value as its author knows it, not too long.
func abbreviateJSON(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%T", value)
	}
	return truncateText(string(raw), 80)
}
