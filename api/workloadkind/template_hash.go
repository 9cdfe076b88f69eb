// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TemplateHash returns the same hash for two workloads that run the same programs, so that a copy
// under another name is recognized. It covers images, commands, environment and mounted sources.
// It ignores labels, resources and placement, because admission changes them and a user would
// change them first. A kind without pod templates is hashed by its spec. The hash has 32
// characters, or is empty if there is nothing to hash.
func TemplateHash(kind schema.GroupKind, object map[string]any) string {
	var programs []any
	for _, template := range Templates(kind, object) {
		programs = append(programs, containerPrograms(asMap(template.Body["spec"]))...)
	}
	if len(programs) > 0 {
		return hashJSON(programs)
	}
	if len(byKind[kind].Templates) > 0 {
		return ""
	}
	spec := maps.Clone(asMap(object["spec"]))
	action := byKind[kind].StopAction
	if action.Method == "" {
		action = suspendAction
	}
	if len(action.Path) == 2 && action.Path[0] == "spec" {
		delete(spec, action.Path[1]) // the hash does not depend on whether it is stopped
	}
	if len(spec) == 0 {
		return ""
	}
	return hashJSON([]any{kind.Group, kind.Kind, spec})
}

// containerPrograms returns what the containers of a pod run.
func containerPrograms(spec map[string]any) []any {
	var all []any
	for _, list := range []string{"initContainers", "containers"} {
		for _, element := range asSlice(spec[list]) {
			container := asMap(element)
			all = append(all, []any{
				container["image"], container["command"], container["args"], container["workingDir"],
				filterEnvironment(container["env"]), container["envFrom"],
			})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return append(all, mountedSources(spec["volumes"]))
}

// filterEnvironment returns a container's environment without the variables that admission sets
// to restrict GPU access.
func filterEnvironment(list any) []any {
	var kept []any
	for _, element := range asSlice(list) {
		name, _ := asMap(element)["name"].(string)
		if !strings.HasPrefix(name, "NVIDIA_") && !strings.HasPrefix(name, "CUDA_") {
			kept = append(kept, element)
		}
	}
	return kept
}

// volumeSources lists the kinds of volumes that can hold a program or its input, with the field
// that names the source.
var volumeSources = []struct{ kind, name string }{
	{"persistentVolumeClaim", "claimName"},
	{"configMap", "name"},
	{"secret", "secretName"},
	{"nfs", "path"},
	{"hostPath", "path"},
}

func mountedSources(volumes any) []any {
	var names []any
	for _, element := range asSlice(volumes) {
		volume := asMap(element)
		for _, source := range volumeSources {
			if name, _ := asMap(volume[source.kind])[source.name].(string); name != "" {
				names = append(names, source.kind+"/"+name)
			}
		}
	}
	return names
}

func hashJSON(v any) string {
	raw, err := json.Marshal(v) // the keys of objects are sorted
	if err != nil {
		return "" // cannot happen: objects are JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}
