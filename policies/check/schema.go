// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"maps"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/dependency"
	"sluice.dev/policies/input"
)

// kubernetesVersion is the version of the kinds in the schemas.
const kubernetesVersion = "1.37"

// Schema is a JSON schema, in the part that OPA's type checker reads. An object without
// properties has any fields; an empty schema allows any value.
type Schema = map[string]any

// tenantFields are the Go types of the fields of input whose fields are always present.
var tenantFields = map[string]reflect.Type{
	"workload":   reflect.TypeFor[workload.Request](),
	"project":    reflect.TypeFor[input.Project](),
	"department": reflect.TypeFor[input.Department](),
	"nodePools":  reflect.TypeFor[[]input.NodePool](),
	"namespace":  reflect.TypeFor[input.Namespace](),
	"nodePool":   reflect.TypeFor[input.NodePool](),
	"use":        reflect.TypeFor[input.Use](),
	"now":        reflect.TypeFor[string](),
}

// InputFields returns the schemas of the fields of input that policies must read correctly. The
// other fields can have any type.
func InputFields() engine.InputTypes {
	fields := make(engine.InputTypes, len(tenantFields))
	for name, t := range tenantFields {
		fields[name] = schemaOf(t)
	}
	return fields
}

// objectTypes are the Go types of the kinds for which policies are evaluated.
var objectTypes = map[string]reflect.Type{"Pod": reflect.TypeFor[corev1.Pod](), "Job": reflect.TypeFor[batchv1.Job]()}

// withObject returns the schemas, with those of an object of a kind.
func withObject(fields engine.InputTypes, kind string) engine.InputTypes {
	fields = maps.Clone(fields)
	object := schemaOf(objectTypes[kind])
	fields["object"], fields["oldObject"] = object, object
	review := schemaOf(reflect.TypeFor[admissionv1.AdmissionRequest]())
	if properties, ok := review["properties"].(Schema); ok {
		properties["object"], properties["oldObject"] = object, object
	}
	fields["review"] = review
	return fields
}

// InputSchema returns the JSON schema of input for policies with a match: of the fields that Sluice defines, and those of the
// matched kind if it is only one. A field of input that the schema does not list does not exist.
func InputSchema(match v1alpha1.PolicyMatch) Schema {
	fields := InputFields()
	if kinds := matchedKinds(match); len(kinds) == 1 {
		fields = withObject(fields, kinds[0])
	}
	properties := make(Schema, len(dependency.InputFields))
	for _, name := range dependency.InputFields {
		if properties[name] = fields[name]; properties[name] == nil {
			properties[name] = Schema{}
		}
	}
	return Schema{"type": "object", "properties": properties}
}

// scalarSchemas are the schemas of types with a JSON form of their own.
var scalarSchemas = map[reflect.Type]Schema{
	reflect.TypeFor[workload.Milli]():    {"type": "number"},
	reflect.TypeFor[workload.Amounts]():  {"type": "object"},
	reflect.TypeFor[period.Duration]():   {"type": "string"},
	reflect.TypeFor[period.Date]():       {"type": "string"},
	reflect.TypeFor[metav1.Time]():       {"type": "string"},
	reflect.TypeFor[metav1.MicroTime]():  {"type": "string"},
	reflect.TypeFor[resource.Quantity](): {}, // a string or a number
}

// marshaler is the interface of types with a JSON form of their own.
var marshaler = reflect.TypeFor[interface{ MarshalJSON() ([]byte, error) }]()

// schemaOf returns the schema of the JSON that values of a Go type have.
func schemaOf(t reflect.Type) Schema {
	if known, ok := scalarSchemas[t]; ok {
		return maps.Clone(known)
	}
	if t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return Schema{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64, reflect.Float64:
		return Schema{"type": "number"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return Schema{"type": "string"}
		}
		return Schema{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return mapSchema(t)
	case reflect.Struct:
		properties := make(Schema)
		addFields(properties, t)
		return Schema{"type": "object", "properties": properties}
	}
	return Schema{}
}

// mapSchema returns the schema of a map. Maps by workload type have all types as keys.
func mapSchema(t reflect.Type) Schema {
	if t.Key() != reflect.TypeFor[v1alpha1.WorkloadType]() {
		return Schema{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	}
	properties := make(Schema)
	for _, workloadType := range v1alpha1.WorkloadTypes {
		properties[string(workloadType)] = schemaOf(t.Elem())
	}
	return Schema{"type": "object", "properties": properties}
}

// addFields adds the fields of a struct, and those of embedded structs.
func addFields(properties Schema, t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case name == "" && field.Anonymous:
			addFields(properties, field.Type)
		default:
			properties[name] = schemaOf(field.Type)
		}
	}
}
