// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TemplateHash is the same for two workloads that run the same: a copy under
// another name is recognised by it. Of the pod templates only the program
// counts: images, commands, environment, and what is mounted by name. Labels,
// resources and placement do not, since admission changes them and a copy's
// author would first. A kind without pod templates is hashed by its spec. It has
// 32 characters, and is empty where there is nothing to hash.
func TemplateHash(kind schema.GroupKind, object map[string]any) string {
	var programs []any
	for _, template := range Templates(kind, object) {
		programs = append(programs, program(entries(template.Body["spec"]))...)
	}
	if len(programs) > 0 {
		return hash(programs)
	}
	if len(byKind[kind].Templates) > 0 {
		return ""
	}
	spec := maps.Clone(entries(object["spec"]))
	verb := byKind[kind].Verb
	if verb.Form == "" {
		verb = suspend
	}
	if len(verb.Path) == 2 && verb.Path[0] == "spec" {
		delete(spec, verb.Path[1]) // stopped or not, it is the same
	}
	if len(spec) == 0 {
		return ""
	}
	return hash([]any{kind.Group, kind.Kind, spec})
}

// program is what a pod's containers run.
func program(spec map[string]any) []any {
	var all []any
	for _, list := range []string{"initContainers", "containers"} {
		for _, element := range elements(spec[list]) {
			container := entries(element)
			all = append(all, []any{
				container["image"], container["command"], container["args"], container["workingDir"],
				environment(container["env"]), container["envFrom"],
			})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return append(all, mounted(spec["volumes"]))
}

// environment is a container's, without what admission sets to keep it from
// other people's GPUs.
func environment(list any) []any {
	var kept []any
	for _, element := range elements(list) {
		name, _ := entries(element)["name"].(string)
		if !strings.HasPrefix(name, "NVIDIA_") && !strings.HasPrefix(name, "CUDA_") {
			kept = append(kept, element)
		}
	}
	return kept
}

// sources are, of the kinds of volumes that can hold a program or its input,
// the names of what is mounted.
var sources = []struct{ kind, name string }{
	{"persistentVolumeClaim", "claimName"},
	{"configMap", "name"},
	{"secret", "secretName"},
	{"nfs", "path"},
	{"hostPath", "path"},
}

func mounted(volumes any) []any {
	var names []any
	for _, element := range elements(volumes) {
		volume := entries(element)
		for _, source := range sources {
			if name, _ := entries(volume[source.kind])[source.name].(string); name != "" {
				names = append(names, source.kind+"/"+name)
			}
		}
	}
	return names
}

func hash(v any) string {
	raw, err := json.Marshal(v) // the keys of objects are sorted
	if err != nil {
		return "" // what is no JSON cannot be stored either
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}
