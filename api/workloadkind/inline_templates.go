// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podSpecFields are the names of the fields of a pod's spec.
var podSpecFields = func() map[string]bool {
	names := map[string]bool{}
	for field := range reflect.TypeFor[corev1.PodSpec]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}()

// podSpecOf returns the fields of a pod's spec among others. Containers without a name get the default name, as the
// operator of the kind sets it.
func podSpecOf(fields map[string]any, defaultName string) map[string]any {
	spec := maps.Clone(fields)
	maps.DeleteFunc(spec, func(name string, _ any) bool { return !podSpecFields[name] })
	for _, name := range []string{"containers", "initContainers"} {
		list := slices.Clone(asSlice(spec[name]))
		if len(list) == 0 {
			continue
		}
		for i, element := range list {
			container := asMap(element)
			if named, _ := container["name"].(string); container == nil || named != "" {
				continue
			}
			container = maps.Clone(container)
			container["name"] = defaultName
			if i > 0 || name != "containers" {
				container["name"] = defaultName + "-" + name + "-" + strconv.Itoa(i)
			}
			list[i] = container
		}
		spec[name] = list
	}
	return spec
}

// knativeTemplates returns the template of a Service of Knative: a pod template with further fields in its spec.
func knativeTemplates(service map[string]any) []Template {
	body := asMap(asMap(service["spec"])["template"])
	spec := asMap(body["spec"])
	if spec == nil {
		return nil
	}
	body = maps.Clone(body)
	body["spec"] = podSpecOf(spec, "user-container")
	return []Template{{Path: "spec.template", Body: body}}
}

// kserveFrameworks are the fields of a component whose container another object has.
var kserveFrameworks = []string{
	"model", "sklearn", "xgboost", "tensorflow", "pytorch", "triton", "onnx", "huggingface", "pmml", "lightgbm", "paddle", "workerSpec", "art",
}

// kserveTemplates returns the pods of an InferenceService whose component has all of its containers. They have the labels
// and annotations of the InferenceService, and those of the component over them.
func kserveTemplates(service map[string]any) []Template {
	var found []Template
	for _, name := range []string{"predictor", "transformer", "explainer"} {
		component := asMap(asMap(service["spec"])[name])
		isSet := func(field string) bool { return component[field] != nil }
		if len(asSlice(component["containers"])) == 0 || slices.ContainsFunc(kserveFrameworks, isSet) {
			continue
		}
		path := "spec." + name
		t := Template{Path: path}
		metadata := map[string]any{}
		for _, field := range []string{"labels", "annotations"} {
			own := asMap(component[field])
			if all := unionOf(asMap(asMap(service["metadata"])[field]), own); len(all) > 0 {
				metadata[field] = all
			}
			for _, key := range slices.Sorted(maps.Keys(own)) {
				t.aliases = append(t.aliases, fieldAlias{"metadata." + field + "[" + key + "]", path + "." + field + "[" + key + "]"})
			}
		}
		t.aliases = append(t.aliases, fieldAlias{"metadata", "metadata"}, fieldAlias{"spec", path})
		t.Body = map[string]any{"metadata": metadata, "spec": podSpecOf(component, "kserve-container")}
		found = append(found, t)
	}
	return found
}

// unionOf returns the entries of both maps; those of the second replace others.
func unionOf(first, second map[string]any) map[string]any {
	union := make(map[string]any, len(first)+len(second))
	maps.Copy(union, first)
	maps.Copy(union, second)
	return union
}
