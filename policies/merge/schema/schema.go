// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"reflect"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Kind is the JSON form of a value.
type Kind uint8

// The kinds of values.
const (
	KindString      Kind = iota
	KindBool             // true or false
	KindNumber           // a whole number
	KindQuantity         // such as "500m", "16Gi" or 2
	KindIntOrString      // such as the number or the name of a port
	KindAny              // any JSON
	KindStruct           // an object with known fields
	KindMap              // an object with free keys
	KindList
)

var kindNames = [...]string{
	"a string", "a boolean", "a whole number", "a quantity", "a whole number or a string", "any value", "an object", "an object", "a list",
}

// String names the kind in a sentence: "a string".
func (k Kind) String() string { return kindNames[k] }

// Type is one part of a pod or a Job. Types are shared and never change.
type Type struct {
	// Name is the name of the Go type; empty for maps and lists.
	Name string
	Kind Kind
	// Atomic parts are replaced as a whole. Lists without keys are, unless they are sets.
	Atomic bool
	// Keys are the fields that identify the elements of an associative list. A set of
	// scalars has none and is not Atomic.
	Keys []string
	// Elem is the type of the elements of a list or map.
	Elem *Type

	fields map[string]*Field
}

// Field is one field of a struct.
type Field struct {
	// Name is the name in JSON.
	Name string
	// Owner is the Go type that declares the field. For a field of an embedded type it is
	// that type: httpGet of a probe belongs to ProbeHandler.
	Owner string
	Type  *Type
	// Pointer fields distinguish zero from absent.
	Pointer bool
	// Union fields exclude each other: a struct has at most one, and they are replaced
	// together.
	Union bool
}

// ID identifies the field in tables: "PodSpec.schedulerName".
func (f *Field) ID() string { return f.Owner + "." + f.Name }

// Pod returns the type of a pod, or of a pod template, without its status.
func Pod() *Type { return podType }

// Job returns the type of a Job, without its status. It shares types with Pod.
func Job() *Type { return jobType }

// Field returns the field of that name; nil if the struct has none.
func (t *Type) Field(name string) *Field { return t.fields[name] }

// Fields returns the names of a struct's fields, in no order.
func (t *Type) Fields() []string {
	names := make([]string, 0, len(t.fields))
	for name := range t.fields {
		names = append(names, name)
	}
	return names
}

// IsAssociative reports whether the part is a list that is merged element by element.
func (t *Type) IsAssociative() bool { return t.Kind == KindList && !t.Atomic }

// IsLeaf reports whether the part is written as one value, which may be a list or struct.
func (t *Type) IsLeaf() bool { return t.Kind < KindStruct || t.Atomic }

// IsKey reports whether a field is among the keys of the list.
func (t *Type) IsKey(name string) bool { return slices.Contains(t.Keys, name) }

// Both types omit status, which the kubelet or the controller writes. They share the
// types of common parts.
var podType, jobType = func() (*Type, *Type) {
	b := schemaBuilder{}
	return b.rootType(reflect.TypeFor[corev1.Pod]()), b.rootType(reflect.TypeFor[batchv1.Job]())
}()

// specialTypes are the types whose JSON form is not that of their Go type.
var specialTypes = map[reflect.Type]*Type{
	reflect.TypeFor[resource.Quantity]():  {Name: "Quantity", Kind: KindQuantity},
	reflect.TypeFor[intstr.IntOrString](): {Name: "IntOrString", Kind: KindIntOrString},
	reflect.TypeFor[metav1.Time]():        {Name: "Time", Kind: KindString},
	reflect.TypeFor[metav1.FieldsV1]():    {Name: "FieldsV1", Kind: KindAny, Atomic: true},
}

// schemaBuilder holds the types of the structs that it has visited.
type schemaBuilder map[reflect.Type]*Type

func (b schemaBuilder) rootType(t reflect.Type) *Type {
	made := b.typeOf(t)
	delete(made.fields, "status")
	return made
}

func (b schemaBuilder) typeOf(t reflect.Type) *Type {
	if known, ok := specialTypes[t]; ok {
		return known
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.typeOf(t.Elem())
	case reflect.String:
		return &Type{Name: t.Name(), Kind: KindString}
	case reflect.Bool:
		return &Type{Name: t.Name(), Kind: KindBool}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return &Type{Name: t.Name(), Kind: KindNumber}
	case reflect.Map:
		return &Type{Kind: KindMap, Elem: b.typeOf(t.Elem())}
	case reflect.Slice:
		return &Type{Kind: KindList, Atomic: true, Elem: b.typeOf(t.Elem())}
	case reflect.Struct:
		if known, ok := b[t]; ok {
			return known
		}
		made := &Type{Name: t.Name(), Kind: KindStruct, Atomic: atomicTypes[t.Name()], fields: map[string]*Field{}}
		b[t] = made
		b.addFields(made, t)
		return made
	}
	return &Type{Name: t.Name(), Kind: KindAny, Atomic: true}
}

func (b schemaBuilder) addFields(into *Type, t reflect.Type) {
	for i := range t.NumField() {
		declared := t.Field(i)
		name, _, _ := strings.Cut(declared.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && declared.Anonymous:
			b.addFields(into, declared.Type)
		default:
			field := &Field{
				Name: name, Owner: t.Name(), Type: b.typeOf(declared.Type),
				Pointer: declared.Type.Kind() == reflect.Pointer,
			}
			field.Union = unionTypes[t.Name()] || unionFields[field.ID()]
			if keys, ok := listKeys[field.ID()]; ok {
				field.Type = &Type{Kind: KindList, Keys: keys, Elem: field.Type.Elem}
			} else if setFields[field.ID()] {
				field.Type = &Type{Kind: KindList, Elem: field.Type.Elem}
			}
			into.fields[name] = field
		}
	}
}

// listKeys are the keys of the associative lists, by field. All other lists are atomic,
// except for sets.
var listKeys = map[string][]string{
	"Container.env":                             {"name"},
	"Container.ports":                           {"containerPort", "protocol"},
	"Container.volumeDevices":                   {"devicePath"},
	"Container.volumeMounts":                    {"mountPath"},
	"EphemeralContainerCommon.env":              {"name"},
	"EphemeralContainerCommon.ports":            {"containerPort", "protocol"},
	"EphemeralContainerCommon.volumeDevices":    {"devicePath"},
	"EphemeralContainerCommon.volumeMounts":     {"mountPath"},
	"JobSchedulingConfiguration.resourceClaims": {"name"},
	"ObjectMeta.ownerReferences":                {"uid"},
	"PodSpec.containers":                        {"name"},
	"PodSpec.ephemeralContainers":               {"name"},
	"PodSpec.evictionResponders":                {"name"},
	"PodSpec.hostAliases":                       {"ip"},
	"PodSpec.imagePullSecrets":                  {"name"},
	"PodSpec.initContainers":                    {"name"},
	"PodSpec.resourceClaims":                    {"name"},
	"PodSpec.schedulingGates":                   {"name"},
	"PodSpec.topologySpreadConstraints":         {"topologyKey", "whenUnsatisfiable"},
	"PodSpec.volumes":                           {"name"},
	"ResourceRequirements.claims":               {"name"},
}

// setFields are the associative lists of scalars. An element is its own key.
var setFields = map[string]bool{
	"ContainerRestartRuleOnExitCodes.values":        true,
	"ObjectMeta.finalizers":                         true,
	"PodFailurePolicyOnExitCodesRequirement.values": true,
	"VolumeMount.bindMountOptions":                  true,
}

// keyDefaults are the defaults of key fields.
var keyDefaults = map[string]string{"protocol": "TCP"}

// KeyDefault returns the default of a key field; empty if each element must set it.
func KeyDefault(key string) string { return keyDefaults[key] }

// atomicTypes are the structs whose parts are meaningless without each other.
var atomicTypes = map[string]bool{
	"AppArmorProfile":           true,
	"ConfigMapKeySelector":      true,
	"EvictionResponder":         true,
	"FileKeySelector":           true,
	"LabelSelector":             true,
	"LifecycleHandler":          true, // a union
	"LocalObjectReference":      true,
	"NodeSelector":              true,
	"NodeSelectorTerm":          true,
	"ObjectFieldSelector":       true,
	"OwnerReference":            true,
	"PodSchedulingGroup":        true, // a union
	"ResourceFieldSelector":     true,
	"SeccompProfile":            true, // a union
	"SecretKeySelector":         true,
	"TypedLocalObjectReference": true,
}

// unionFields exclude each other in structs that also have other fields.
var unionFields = map[string]bool{
	"EnvVar.value":                               true,
	"EnvVar.valueFrom":                           true,
	"PodResourceClaim.resourceClaimName":         true,
	"PodResourceClaim.resourceClaimTemplateName": true,
}

// unionTypes are embedded structs whose fields all exclude each other.
var unionTypes = map[string]bool{"ProbeHandler": true, "VolumeSource": true}
