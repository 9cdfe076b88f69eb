// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package document holds the JSON documents that policies read.
//
// It decodes JSON text or Go values, and returns each document both as Go values and as
// the term that OPA evaluates. Its decoder is stricter and faster than encoding/json,
// since every admission request passes through it. The package omits
// metadata.managedFields, the only field of Kubernetes that it knows, and never changes a
// document.
package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Document is a JSON document that policies read. It never changes and is safe for
// concurrent use. The zero Document is absent: policies read it as undefined.
type Document struct {
	contents *documentContents
}

// documentContents holds the value and its OPA term. The term is created when the first
// policy needs it, since most results come from a cache.
type documentContents struct {
	value any
	once  sync.Once
	term  *ast.Term
}

// New returns the Document of a JSON value, as [Document.Object] describes it. The caller
// must not change the value afterwards.
func New(value any) Document { return Document{&documentContents{value: value}} }

// FromGo returns the Document of a Go value that encoding/json can encode. It omits
// metadata.managedFields, as [Decode] does.
func FromGo(value any) (Document, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return Document{}, fmt.Errorf("convert %T for policies: %w", value, err)
	}
	return Decode(raw)
}

// FromObject returns the Document of an object. The caller must not change the object
// afterwards.
func FromObject(object map[string]any) Document { return New(object) }

// Object returns the document's JSON object; nil if the document is not an object. It
// consists of maps, []any, strings, booleans and nil. Numbers are int64, or json.Number
// if they are not written as an int64. It is not a copy: the caller must not change it.
func (d Document) Object() map[string]any {
	object, _ := d.Value().(map[string]any)
	return object
}

// IsAbsent reports whether the document is missing or null.
func (d Document) IsAbsent() bool { return d.Value() == nil }

// Value returns the document's JSON value; nil if it is absent. The caller must not
// change it.
func (d Document) Value() any {
	if d.contents == nil {
		return nil
	}
	return d.contents.value
}

// Term returns the document as an OPA term; nil if it is absent.
func (d Document) Term() *ast.Term {
	if d.contents == nil {
		return nil
	}
	d.contents.once.Do(func() {
		if d.contents.term == nil {
			d.contents.term = NewTerm(d.contents.value)
		}
	})
	return d.contents.term
}

// Field returns a field of an object; absent if there is none.
func (d Document) Field(name string) Document {
	value, ok := d.Object()[name]
	if !ok {
		return Document{}
	}
	return New(value)
}

// WithField returns a copy of the object with one field set, or removed if value is
// absent. A document that is not an object becomes an object of that one field.
func (d Document) WithField(name string, value Document) Document {
	object := maps.Clone(d.Object())
	switch {
	case value.contents == nil:
		delete(object, name)
	case object == nil:
		object = map[string]any{name: value.contents.value}
	default:
		object[name] = value.contents.value
	}
	if object == nil {
		object = map[string]any{}
	}
	return New(object)
}

// Equal reports whether two documents hold the same JSON value.
func (d Document) Equal(other Document) bool {
	if d.contents == nil || other.contents == nil {
		return d.contents == other.contents
	}
	return d.Term().Value.Compare(other.Term().Value) == 0
}

// MarshalJSON returns the document's JSON; null if it is absent.
func (d Document) MarshalJSON() ([]byte, error) { return json.Marshal(d.Value()) }

// NewTerm converts a JSON value to an OPA term.
func NewTerm(value any) *ast.Term {
	switch value := value.(type) {
	case nil:
		return ast.InternedNullTerm
	case bool:
		return ast.InternedTerm(value)
	case string:
		return KeyTerm(value)
	case int64, float64, json.Number:
		return numberTerm(FormatNumber(value))
	case []any:
		if len(value) == 0 {
			return ast.InternedEmptyArray
		}
		elements := make([]*ast.Term, len(value))
		for i, element := range value {
			elements[i] = NewTerm(element)
		}
		return ast.NewTerm(ast.NewArray(elements...))
	case map[string]any:
		if len(value) == 0 {
			return ast.InternedEmptyObject
		}
		pairs := make([][2]*ast.Term, 0, len(value))
		for key, field := range value {
			pairs = append(pairs, [2]*ast.Term{KeyTerm(key), NewTerm(field)})
		}
		return ast.NewTerm(ast.NewObject(pairs...))
	}
	// The caller composed the object of other Go types.
	if other, err := ast.InterfaceToValue(value); err == nil {
		return ast.NewTerm(other)
	}
	return ast.StringTerm(fmt.Sprint(value))
}

func numberTerm(text string) *ast.Term {
	if known := ast.InternedIntNumberTermFromString(text); known != nil {
		return known
	}
	return ast.NewTerm(ast.Number(text))
}

// FormatNumber returns a number as text; empty for any other value.
func FormatNumber(value any) string {
	switch value := value.(type) {
	case int64:
		return strconv.FormatInt(value, 10)
	case json.Number:
		return string(value)
	case float64:
		if text, err := json.Marshal(value); err == nil {
			return string(text)
		}
	}
	return ""
}

// commonTerms are the terms of strings that occur in nearly every pod. They are shared
// and must never be changed.
var commonTerms = func() map[string]*ast.Term {
	terms := make(map[string]*ast.Term)
	for _, text := range []string{
		// An admission review.
		"kind", "apiVersion", "request", "uid", "requestKind", "resource", "requestResource", "subResource",
		"group", "version", "name", "namespace", "operation", "userInfo", "username", "groups", "extra",
		"object", "oldObject", "dryRun", "options", "CREATE", "UPDATE", "CONNECT", "DELETE", "pods", "v1", "apps/v1",
		"fieldManager", "fieldValidation", "CreateOptions", "UpdateOptions", "meta.k8s.io/v1", "Pod",
		// Metadata.
		"metadata", "generateName", "creationTimestamp", "labels", "annotations", "ownerReferences",
		"blockOwnerDeletion", "controller", "resourceVersion", "generation", "finalizers",
		// A pod.
		"spec", "status", "containers", "initContainers", "ephemeralContainers", "volumes", "image", "imagePullPolicy",
		"command", "args", "env", "envFrom", "value", "valueFrom", "fieldRef", "fieldPath", "secretKeyRef",
		"configMapKeyRef", "key", "optional", "ports", "containerPort", "hostPort", "protocol", "TCP", "UDP", "resources",
		"limits", "requests", "claims", "cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "volumeMounts",
		"mountPath", "subPath", "readOnly", "livenessProbe", "readinessProbe", "startupProbe", "httpGet", "path", "port",
		"scheme", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold",
		"exec", "tcpSocket", "lifecycle", "preStop", "securityContext", "runAsUser", "runAsGroup", "runAsNonRoot",
		"fsGroup", "capabilities", "drop", "add", "privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem",
		"seccompProfile", "type", "RuntimeDefault", "terminationMessagePath", "terminationMessagePolicy",
		"/dev/termination-log", "File", "Always", "IfNotPresent", "Never", "OnFailure", "restartPolicy",
		"terminationGracePeriodSeconds", "dnsPolicy", "ClusterFirst", "serviceAccountName", "serviceAccount", "default",
		"nodeName", "nodeSelector", "affinity", "nodeAffinity", "podAffinity", "podAntiAffinity", "tolerations",
		"operator", "Exists", "Equal", "In", "NotIn", "effect", "NoSchedule", "NoExecute", "tolerationSeconds",
		"requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution",
		"nodeSelectorTerms", "matchExpressions", "matchLabels", "matchFields", "values", "weight", "preference",
		"topologyKey", "topologySpreadConstraints", "priorityClassName", "priority", "preemptionPolicy",
		"PreemptLowerPriority", "schedulerName", "default-scheduler", "schedulingGates", "enableServiceLinks",
		"hostNetwork", "hostPID", "hostIPC", "hostPath", "emptyDir", "medium", "sizeLimit", "configMap", "secret",
		"secretName", "items", "defaultMode", "projected", "sources", "serviceAccountToken", "expirationSeconds",
		"downwardAPI", "persistentVolumeClaim", "claimName", "runtimeClassName", "resourceClaims", "kube-root-ca.crt",
		"ca.crt", "token", "phase", "Pending", "qosClass",
		// The fields of input other than the object.
		"review", "workload", "project", "department", "nodePools", "now", "use", "parameters", "",
	} {
		terms[text] = ast.NewTerm(ast.String(text))
	}
	return terms
}()

// KeyTerm returns the term of a string, shared if it is common.
func KeyTerm(key string) *ast.Term {
	if known, ok := commonTerms[key]; ok {
		return known
	}
	return ast.NewTerm(ast.String(key))
}

// FieldTerm returns a field of the document as an OPA term; nil if there is none.
func (d Document) FieldTerm(name string) *ast.Term {
	if d.IsAbsent() {
		return nil
	}
	if object, ok := d.Term().Value.(ast.Object); ok {
		return object.Get(KeyTerm(name))
	}
	return nil
}
