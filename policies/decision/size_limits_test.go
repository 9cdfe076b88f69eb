// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
)

// manyKeys returns a map of a hostile author.
func manyKeys(number int, more ...string) map[string]any {
	keys := make(map[string]any, number)
	for i := range number {
		keys[fmt.Sprintf("key-%d", i)] = "x"
	}
	for _, key := range more {
		keys[key] = "x"
	}
	return keys
}

func long(bytes int) string { return strings.Repeat("/", bytes) }

func manyEntries(number int) []any {
	entries := make([]any, number)
	for i := range entries {
		entries[i] = map[string]any{"name": fmt.Sprintf("entry-%d", i), "value": "x"}
	}
	return entries
}

// No policy goes through a pod that is too large: it would take the time of others, and be blamed for it. Guards
// invariant 10 of the design.
func TestSizeLimitsPrecedePolicies(t *testing.T) {
	refusing := map[string]string{"a": `deny contains "evaluated"`}
	container := func(field string, value any) map[string]any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", field: value}}}}
	}
	spec := func(field string, value any) map[string]any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main"}}, field: value}}
	}
	metadata := func(field string, value any) map[string]any {
		pod := spec("nodeName", "")
		pod["metadata"] = map[string]any{field: value}
		return pod
	}
	resources := func(number int) map[string]any { return map[string]any{"limits": manyKeys(number)} }
	for name, tc := range map[string]struct {
		pod  map[string]any
		want string // the denial; the policy's if the pod is evaluated
	}{
		"as many labels as allowed":    {metadata("labels", manyKeys(256)), "evaluated"},
		"labels of Sluice":             {metadata("labels", manyKeys(256, v1alpha1.LabelProject, v1alpha1.LabelDepartment)), "evaluated"},
		"too many labels":              {metadata("labels", manyKeys(257)), "metadata.labels: 257 entries, of which at most 256 are allowed; remove"},
		"a storm of labels":            {metadata("labels", manyKeys(40000)), "metadata.labels: 40000 entries, of which at most 256"},
		"unknown keys of sluice":       {metadata("labels", manyKeys(256, "sluice.dev/unknown")), "metadata.labels: 257 entries"},
		"too many annotations":         {metadata("annotations", manyKeys(257)), "metadata.annotations: 257 entries, of which at most 256"},
		"too many owners":              {metadata("ownerReferences", manyEntries(5001)), "metadata.ownerReferences: 5001 entries, of which at most 5000"},
		"too many finalizers":          {metadata("finalizers", manyEntries(5001)), "metadata.finalizers: 5001 entries"},
		"as many variables":            {container("env", manyEntries(5000)), "evaluated"},
		"too many variables":           {container("env", manyEntries(5001)), "spec.containers[0].env: 5001 entries, of which at most 5000"},
		"too many resources":           {container("resources", resources(65)), "spec.containers[0].resources.limits: 65 entries, of which at most 64"},
		"too many containers":          {spec("containers", manyEntries(501)), "spec.containers: 501 entries, of which at most 500"},
		"too many init containers":     {spec("initContainers", manyEntries(501)), "spec.initContainers: 501 entries, of which at most 500"},
		"too many volumes":             {spec("volumes", manyEntries(5001)), "spec.volumes: 5001 entries"},
		"too many tolerations":         {spec("tolerations", manyEntries(5001)), "spec.tolerations: 5001 entries"},
		"as long a variable":           {container("env", []any{map[string]any{"name": "A", "value": long(128 << 10)}}), "evaluated"},
		"too long a variable":          {container("env", []any{map[string]any{"name": "A", "value": long(128<<10 + 1)}}), "spec.containers[0].env[0].value: 131073 bytes, of which at most 131072"},
		"too long an argument":         {container("args", []any{long(2 << 20)}), "spec.containers[0].args[0]: 2097152 bytes"},
		"as long a path":               {container("workingDir", long(4096)), "evaluated"},
		"a path of slashes":            {spec("volumes", []any{map[string]any{"name": "v", "hostPath": map[string]any{"path": long(2 << 20)}}}), "spec.volumes[0].hostPath.path: 2097152 bytes, of which at most 4096"},
		"too long a mount path":        {container("volumeMounts", []any{map[string]any{"name": "v", "mountPath": long(4097)}}), "spec.containers[0].volumeMounts[0].mountPath: 4097 bytes"},
		"too long annotations":         {metadata("annotations", map[string]any{"a": long(200 << 10), "b": long(60 << 10)}), "metadata.annotations: 266242 bytes, of which at most 262144"},
		"too long a label":             {metadata("labels", map[string]any{"a": long(2 << 20)}), "metadata.labels.a: 2097152 bytes, of which at most 4096"},
		"too long a key":               {spec("nodeSelector", map[string]any{long(2 << 20): "x"}), "spec.nodeSelector: a key has 2097152 bytes, of which at most 4096"},
		"too long a resource":          {container("resources", map[string]any{"limits": map[string]any{long(2 << 20): "1"}}), "spec.containers[0].resources.limits: a key has 2097152 bytes"},
		"too long an annotation's key": {metadata("annotations", map[string]any{long(2 << 20): "x"}), "metadata.annotations: a key has 2097152 bytes"},
		"a long annotation":            {metadata("annotations", map[string]any{"a": long(200 << 10)}), "evaluated"},
		"too large in all":             {container("args", []any{long(100 << 10), long(100 << 10), long(100 << 10)}), "the object: 307"},
		"too many node labels":         {spec("nodeSelector", manyKeys(5001)), "spec.nodeSelector: 5001 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			for _, final := range []bool{false, true} {
				text := denialText(evaluatePod(t, final, string(raw), refusing))
				if !strings.HasPrefix(text, tc.want) || strings.Contains(text, "\n") {
					t.Errorf("final %v: denied with %q, want only %q", final, text, tc.want)
				}
			}
		})
	}
}
