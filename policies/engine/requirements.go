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

// Requirement is what a policy requires of the cluster, or a setting that it reads.
// Either CRD or Setting is set.
type Requirement struct {
	// Policy is the policy's name.
	Policy string
	// CRD is the name of a custom resource definition. Version is the version that it
	// must serve; empty means any.
	CRD, Version string
	// Setting is a place in an object.
	Setting *Setting
	// Is is the required value, if HasIs is set; otherwise any value will do. A list must
	// contain all elements of Is. It is JSON with int64 for integers.
	Is    any
	HasIs bool
	// Optional: the requirement is met if the definition, the object or its kind does not
	// exist.
	Optional bool
	// Advisory: the node pool accepts pods without it, and works less well.
	Advisory bool
	// As is the name under which policies read the text at the setting, and Default the
	// text if it does not exist. Such a setting requires nothing.
	As, Default string
	// AllowEmpty: an empty text at the setting is its value. Else it means the default.
	AllowEmpty bool
	// Fix says what to do if the requirement is not met; it may be empty with As.
	Fix string
}

// Setting is a place in an object of the cluster.
type Setting struct {
	// APIVersion, Kind, Namespace and Name identify the object. Namespace is empty for
	// cluster-scoped kinds.
	APIVersion, Kind, Namespace, Name string
	// Where selects the object, if Name is empty.
	Where *Where
	// Path are the keys to the place. Below a string, the string is read as YAML; in a
	// list a key is an index.
	Path []string
}

// Where selects the object, the first by name, that has a text at a place. A text that is not
// set is empty.
type Where struct {
	Path []string
	Is   string
}

const (
	// maxRequirements limits the elements of requires, maxPathKeys the keys of a path:
	// lifecycle checks them again and again.
	maxRequirements = 100
	maxPathKeys     = 32
)

// parseRequirements parses the value of requires.
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
		requirement, err := n.parseRequirement(element.Value)
		if err != nil {
			return nil, err
		}
		if requirement.As != "" && named[requirement.As] {
			return nil, newValueError("has as %s twice; each setting needs a unique name", requirement.As)
		}
		named[requirement.As] = requirement.As != ""
		requirement.Policy = policy
		all = append(all, requirement)
	}
	return all, nil
}

// parseRequirement parses one element, in one of its three forms.
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
	r.Advisory = f.boolean("advisory")
	switch {
	case f.has("crd") == f.has("setting"):
		f.fail("needs either crd or setting")
	case f.has("crd"):
		f.allowOnly("crd", "version", "optional", "advisory", "fix")
		r.CRD = f.requiredString("crd", crdNameFormat)
		r.Version = f.optionalString("version", versionFormat)
		r.Optional = f.boolean("optional")
		r.Fix = f.fixText()
	case f.has("as"):
		f.allowOnly("setting", "as", "default", "allowEmpty", "advisory", "fix")
		r.Setting = f.setting("setting")
		r.As = f.requiredString("as", settingNameFormat)
		r.Default = f.requiredString("default", anyStringFormat)
		r.AllowEmpty = f.boolean("allowEmpty")
		if f.has("fix") {
			r.Fix = f.fixText()
		}
	default:
		f.allowOnly("setting", "is", "optional", "advisory", "fix")
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

// fieldReader reads the fields of an object from a policy, and keeps the first problem.
type fieldReader struct {
	fields  map[string]any
	problem string
}

// stringFormat is a format of strings, as a pattern and in words.
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
	versionFormat    = stringFormat{regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`), "a version, such as v1beta2"}
	apiVersionFormat = stringFormat{
		regexp.MustCompile(`^([a-z0-9][-.a-z0-9]{0,252}/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`),
		"an API version, such as v1 or kai.scheduler/v1",
	}
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

// allowOnly fails on any other field.
func (f *fieldReader) allowOnly(allowed ...string) {
	for _, name := range slices.Sorted(maps.Keys(f.fields)) {
		if !slices.Contains(allowed, name) {
			f.fail("has the field %s; %s are allowed", abbreviateJSON(name), strings.Join(allowed, ", "))
		}
	}
}

func (f *fieldReader) requiredString(name string, format stringFormat) string {
	if !f.has(name) {
		f.fail("has no %s", name)
		return ""
	}
	text, ok := f.fields[name].(string)
	if !ok || !format.pattern.MatchString(text) {
		f.fail("%s must be %s, and is %s", name, format.description, abbreviateJSON(f.fields[name]))
		return ""
	}
	return text
}

// optionalString returns "" for a missing field.
func (f *fieldReader) optionalString(name string, format stringFormat) string {
	if !f.has(name) {
		return ""
	}
	return f.requiredString(name, format)
}

func (f *fieldReader) boolean(name string) bool {
	value, ok := f.fields[name].(bool)
	if f.has(name) && !ok {
		f.fail("%s must be true or false, and is %s", name, abbreviateJSON(f.fields[name]))
	}
	return value
}

// fixText returns the instruction for users.
func (f *fieldReader) fixText() string {
	fix := singleLine(f.requiredString("fix", anyStringFormat))
	if f.problem == "" && strings.TrimSpace(fix) == "" {
		f.fail("fix is empty; state what to do if the requirement is not met")
	}
	return fix
}

func (f *fieldReader) setting(name string) *Setting {
	fields, ok := f.fields[name].(map[string]any)
	if !ok {
		f.fail("%s must be an object of apiVersion, kind, namespace, name or where, and path, and is %s", name, abbreviateJSON(f.fields[name]))
		return nil
	}
	in := &fieldReader{fields: fields}
	in.allowOnly("apiVersion", "kind", "namespace", "name", "where", "path")
	s := &Setting{
		APIVersion: in.requiredString("apiVersion", apiVersionFormat),
		Kind:       in.requiredString("kind", kindFormat),
		Namespace:  in.optionalString("namespace", namespaceFormat),
		Path:       in.keyPath("path"),
	}
	if in.has("where") {
		s.Where = in.where("where")
	} else {
		s.Name = in.requiredString("name", objectNameFormat)
	}
	if in.has("where") && in.has("name") {
		in.fail("needs either name or where")
	}
	if wrong := content.IsPathSegmentName(s.Name); s.Where == nil && len(wrong) > 0 {
		in.fail("name %s", wrong[0])
	}
	// Anyone may read the value in a pool's status.
	if s.APIVersion == "v1" && s.Kind == "Secret" {
		in.fail("kind must not be Secret: settings are public")
	}
	if in.problem != "" {
		f.fail("%s: %s", name, in.problem)
	}
	return s
}

func (f *fieldReader) where(name string) *Where {
	fields, ok := f.fields[name].(map[string]any)
	if !ok {
		f.fail("%s must be an object of path and is, and is %s", name, abbreviateJSON(f.fields[name]))
		return nil
	}
	in := &fieldReader{fields: fields}
	in.allowOnly("path", "is")
	w := &Where{Path: in.keyPath("path"), Is: in.requiredString("is", anyStringFormat)}
	if in.problem != "" {
		f.fail("%s: %s", name, in.problem)
	}
	return w
}

func (f *fieldReader) keyPath(name string) []string {
	list, ok := f.fields[name].([]any)
	if !ok || len(list) == 0 || len(list) > maxPathKeys {
		f.fail(`%s must be an array of 1 to %d keys, as in ["data", "config.yaml", "fairSharing"], and is %s`,
			name, maxPathKeys, abbreviateJSON(f.fields[name]))
		return nil
	}
	keys := make([]string, len(list))
	for i, key := range list {
		if keys[i], ok = key.(string); !ok || keys[i] == "" {
			f.fail("%s[%d] must be a key or, in quotes, an index, and is %s", name, i, abbreviateJSON(key))
		}
	}
	return keys
}

// abbreviateJSON returns a value as JSON, shortened for a message.
func abbreviateJSON(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%T", value)
	}
	return truncateText(string(raw), 80)
}
