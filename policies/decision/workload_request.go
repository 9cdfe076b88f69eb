// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge/schema"
)

// jobOwner is the kind that creates a Job's pods.
var jobOwner = workload.Owner{Group: batchv1.GroupName, Kind: "Job"}

// DecodeError is the error of an object whose fields are not those of a pod or a Job.
type DecodeError struct {
	kind string
	err  error
}

// Error implements error.
func (e *DecodeError) Error() string { return fmt.Sprintf("decode %s: %v", e.kind, e.err) }

// Unwrap returns what is wrong with the fields.
func (e *DecodeError) Unwrap() error { return e.err }

// workloadRequest returns the GPU request of a pod, or of each pod of a Job. The error is a
// workload.InvalidRequest if the request is invalid.
func (r *Request) workloadRequest(object map[string]any) (workload.Request, error) {
	template, kind := object, "pod"
	if r.IsJob {
		template, kind = schema.AsMap(schema.AsMap(object["spec"])["template"]), "Job"
	}
	var typed corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(relevantFields(template), &typed); err != nil {
		return workload.Request{}, &DecodeError{kind, err}
	}
	if err := decodeEnvVars(template, &typed.Spec); err != nil {
		return workload.Request{}, &DecodeError{kind, err}
	}
	request, err := r.Tenant.Units.Parse(&typed)
	if r.IsTemplate {
		request.Owner = r.Owner
	}
	if r.IsJob {
		request.Owner = jobOwner
		var invalid workload.InvalidRequest
		if errors.As(err, &invalid) {
			return request, invalid.WithPrefix("spec.template")
		}
	}
	return request, err
}

// The GPU request does not depend on these fields, and decoding them takes longer than decoding all the others.
// decodeEnvVars decodes the variables.
var (
	irrelevantSpecFields = []string{
		"affinity", "dnsConfig", "hostAliases", "imagePullSecrets", "readinessGates", "securityContext",
		"tolerations", "topologySpreadConstraints", "volumes",
	}
	irrelevantContainerFields = []string{
		"args", "command", "env", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "ports", "readinessProbe",
		"securityContext", "startupProbe", "terminationMessagePath", "terminationMessagePolicy", "volumeDevices",
		"volumeMounts", "workingDir",
	}
)

// relevantFields returns a pod's metadata and spec without the irrelevant fields.
func relevantFields(template map[string]any) map[string]any {
	relevant := make(map[string]any, 2)
	for _, name := range []string{"metadata", "spec"} {
		if value, ok := template[name]; ok {
			relevant[name] = value
		}
	}
	spec, ok := relevant["spec"].(map[string]any)
	if !ok {
		return relevant
	}
	spec = omitFields(spec, irrelevantSpecFields)
	for _, name := range []string{"containers", "initContainers", "ephemeralContainers"} {
		list, ok := spec[name].([]any)
		if !ok {
			continue
		}
		list = slices.Clone(list)
		for i, element := range list {
			if container, ok := element.(map[string]any); ok {
				list[i] = omitFields(container, irrelevantContainerFields)
			}
		}
		spec[name] = list
	}
	relevant["spec"] = spec
	return relevant
}

// omitFields returns a copy of an object without some of its fields.
func omitFields(object map[string]any, names []string) map[string]any {
	kept := make(map[string]any, len(object))
	for name, value := range object {
		if !slices.Contains(names, name) {
			kept[name] = value
		}
	}
	return kept
}

// decodeEnvVars decodes the variables of all containers into spec. A pod can have very many; nearly all are a
// name and a value.
func decodeEnvVars(template map[string]any, spec *corev1.PodSpec) error {
	source := schema.AsMap(template["spec"])
	for name, containers := range map[string][]corev1.Container{"containers": spec.Containers, "initContainers": spec.InitContainers} {
		for i, container := range schema.AsList(source[name]) {
			variables, ok := schema.AsMap(container)["env"]
			if !ok || variables == nil {
				continue
			}
			list, ok := variables.([]any)
			if !ok {
				return fmt.Errorf("spec.%s[%d].env is not a list", name, i)
			}
			containers[i].Env = make([]corev1.EnvVar, len(list))
			for j, variable := range list {
				if err := decodeEnvVar(variable, &containers[i].Env[j]); err != nil {
					return fmt.Errorf("spec.%s[%d].env[%d]: %w", name, i, j, err)
				}
			}
		}
	}
	return nil
}

func decodeEnvVar(value any, variable *corev1.EnvVar) error {
	fields, ok := value.(map[string]any)
	if !ok {
		return errors.New("not an object")
	}
	for name, value := range fields {
		text, ok := value.(string)
		switch {
		case ok && name == "name":
			variable.Name = text
		case ok && name == "value":
			variable.Value = text
		default:
			return runtime.DefaultUnstructuredConverter.FromUnstructured(fields, variable)
		}
	}
	return nil
}

// The limits of the cache: different pods mostly have one of a few requests.
const (
	maxCachedRequests     = 256
	maxCachedRequestBytes = 1 << 20
)

// requestDocumentCache caches input.workload by request. The zero value is ready to use.
type requestDocumentCache struct {
	once      sync.Once
	documents *engine.Cache[string, document.Document]
}

// document returns input.workload for a request.
func (c *requestDocumentCache) document(request *workload.Request) (document.Document, error) {
	c.once.Do(func() {
		c.documents = engine.NewCache[string, document.Document](maxCachedRequests, maxCachedRequestBytes)
	})
	raw, err := json.Marshal(request)
	if err != nil {
		return document.Document{}, fmt.Errorf("encode GPU request: %w", err)
	}
	if cached, ok := c.documents.Get(string(raw)); ok {
		return cached, nil
	}
	decoded, err := document.Decode(raw)
	if err != nil {
		return document.Document{}, fmt.Errorf("encode GPU request: %w", err)
	}
	// The decoded document takes several times the memory of the text.
	c.documents.Put(string(raw), decoded, 8*len(raw))
	return decoded, nil
}
