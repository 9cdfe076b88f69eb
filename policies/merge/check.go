// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// check tells whether a policy's value for a leaf is what the pod has there, and
// notes the fault if not: a mistake must not vanish on its way.
func (b *builder) check(n *node, t *podschema.Type, v any) bool {
	where, problem := misfit(t, v)
	if problem == "" {
		return true
	}
	b.intent(b.policy, n.path()+where, "%s", problem)
	return false
}

// misfit is where in a value something does not fit the type, and what; both are
// empty if all fits.
func misfit(t *podschema.Type, v any) (where, problem string) {
	var ok bool
	switch t.Kind {
	case podschema.Text:
		_, ok = v.(string)
	case podschema.Bool:
		_, ok = v.(bool)
	case podschema.Number:
		_, ok = value.Whole(v)
	case podschema.Quantity:
		_, ok = value.Quantity(v)
	case podschema.IntOrText:
		if _, ok = v.(string); !ok {
			_, ok = value.Whole(v)
		}
	case podschema.Free:
		// Nothing that a policy can write.
	case podschema.List:
		var list []any
		if list, ok = v.([]any); ok {
			return misfitElement(t, list)
		}
	default:
		var object map[string]any
		if object, ok = v.(map[string]any); ok {
			return misfitField(t, object)
		}
	}
	switch {
	case ok:
		return "", ""
	case v == nil:
		return "", "is null, which has nothing to remove here"
	}
	return "", fmt.Sprintf("is %s, not %s", t.Kind, kindOf(v))
}

func misfitElement(t *podschema.Type, list []any) (where, problem string) {
	for i, element := range list {
		if where, problem := misfit(t.Elem, element); problem != "" {
			return "[" + strconv.Itoa(i) + "]" + where, problem
		}
	}
	return "", ""
}

func misfitField(t *podschema.Type, object map[string]any) (where, problem string) {
	for name, in := range object {
		// The first by name, so that the same intent has the same message.
		if w, p := misfitNamed(t, name, in); p != "" && (problem == "" || w < where) {
			where, problem = w, p
		}
	}
	return where, problem
}

func misfitNamed(t *podschema.Type, name string, v any) (where, problem string) {
	if t.Kind == podschema.Dict {
		if strings.HasPrefix(name, "$") {
			return "[" + name + "]", "is a directive, of which there are none"
		}
		where, problem = misfit(t.Elem, v)
		return "[" + name + "]" + where, problem
	}
	field := t.Field(name)
	if field == nil {
		return "." + name, "a pod has no such field"
	}
	where, problem = misfit(field.Type, v)
	return "." + name + where, problem
}

// kindOf names what a value is: "a string", "a list".
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "the string " + shown(v)
	case bool:
		return "a boolean"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case int, int32, int64, float64, json.Number:
		return "the number " + shown(v)
	}
	return fmt.Sprintf("a %T, which is not JSON", v)
}
