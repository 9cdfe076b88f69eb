// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

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
	"sluice.dev/policies/engine/cache"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge/schema"
)

// jobOwner is the kind that makes a Job's pods.
var jobOwner = workload.Owner{Group: batchv1.GroupName, Kind: "Job"}

// workloadRequest is what a pod asks for, or what each of a Job's pods will. The error is
// workload.InvalidRequest where that cannot be.
func (q *Request) workloadRequest(object map[string]any) (workload.Request, error) {
	template, kind := object, "pod"
	if q.IsJob {
		template, kind = schema.AsMap(schema.AsMap(object["spec"])["template"]), "Job"
	}
	var typed corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(relevantFields(template), &typed); err != nil {
		return workload.Request{}, fmt.Errorf("reading the %s: %w", kind, err)
	}
	if err := decodeEnvVars(template, &typed.Spec); err != nil {
		return workload.Request{}, fmt.Errorf("reading the %s: %w", kind, err)
	}
	request, err := workload.Parse(&typed)
	if q.IsTemplate {
		request.Owner = q.Owner
	}
	if q.IsJob {
		request.Owner = jobOwner
		var malformed workload.InvalidRequest
		if errors.As(err, &malformed) {
			return request, malformed.WithPrefix("spec.template")
		}
	}
	return request, err
}

// Most of a pod has nothing to do with what it asks for. To read these fields too
// would take longer than all that is read. Variables are read apart.
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

// relevantFields is the part of a pod that may say what it asks for: its metadata, and its
// spec but for what is known to be idle.
func relevantFields(template map[string]any) map[string]any {
	part := make(map[string]any, 2)
	for _, name := range []string{"metadata", "spec"} {
		if in, ok := template[name]; ok {
			part[name] = in
		}
	}
	spec, ok := part["spec"].(map[string]any)
	if !ok {
		return part
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
	part["spec"] = spec
	return part
}

// omitFields is an object without some of its fields.
func omitFields(object map[string]any, names []string) map[string]any {
	rest := make(map[string]any, len(object))
	for name, in := range object {
		if !slices.Contains(names, name) {
			rest[name] = in
		}
	}
	return rest
}

// decodeEnvVars reads the variables of all containers into a spec without them.
// Nearly all are a name and a value, and there may be very many.
func decodeEnvVars(template map[string]any, spec *corev1.PodSpec) error {
	from := schema.AsMap(template["spec"])
	for name, containers := range map[string][]corev1.Container{"containers": spec.Containers, "initContainers": spec.InitContainers} {
		for i, container := range schema.AsList(from[name]) {
			variables, ok := schema.AsMap(container)["env"]
			if !ok || variables == nil {
				continue
			}
			list, ok := variables.([]any)
			if !ok {
				return fmt.Errorf("spec.%s[%d].env is no list", name, i)
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

func decodeEnvVar(from any, variable *corev1.EnvVar) error {
	fields, ok := from.(map[string]any)
	if !ok {
		return errors.New("it is no object")
	}
	for name, in := range fields {
		text, ok := in.(string)
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

// How many requests are kept as policies read them, and how many bytes of them.
// Pods that are all different mostly ask for one of a few things.
const (
	maxCachedRequests     = 256
	maxCachedRequestBytes = 1 << 20
)

// requestDocumentCache keeps requests as policies read them. The zero value is ready to use.
type requestDocumentCache struct {
	once      sync.Once
	documents *cache.Cache[string, document.Document]
}

// document is a request as policies read it.
func (d *requestDocumentCache) document(request *workload.Request) (document.Document, error) {
	d.once.Do(func() { d.documents = cache.New[string, document.Document](maxCachedRequests, maxCachedRequestBytes) })
	raw, err := json.Marshal(request)
	if err != nil {
		return document.Document{}, fmt.Errorf("describing what the pod asks for: %w", err)
	}
	if known, ok := d.documents.Get(string(raw)); ok {
		return known, nil
	}
	decoded, err := document.Decode(raw)
	if err != nil {
		return document.Document{}, fmt.Errorf("describing what the pod asks for: %w", err)
	}
	// The values and what policies see of them take several times the text.
	d.documents.Put(string(raw), decoded, 8*len(raw))
	return decoded, nil
}
