// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"strings"
)

// numbered returns an object of YAML with so many keys.
func numbered(number int) string {
	var out strings.Builder
	for i := range number {
		fmt.Fprintf(&out, "example.org/key-%d: x, ", i)
	}
	return "{" + out.String() + "}"
}

// variables returns a fragment of a pod with so many environment variables.
func variables(number int) string {
	var out strings.Builder
	for i := range number {
		fmt.Fprintf(&out, "{name: V%d, value: x}, ", i)
	}
	return "{spec: {containers: [{name: main, env: [" + out.String() + "]}]}}"
}

// fullPod has as many labels and annotations as are allowed.
var fullPod = own("Pod", "{metadata: {labels: "+numbered(255)+", annotations: "+numbered(255)+"}}")

const tooManyLabels, tooManyAnnotations, tooManyEntries = "metadata.labels: 257 entries, of which at most 256 are allowed",
	"metadata.annotations: 257 entries, of which at most 256 are allowed", "entries, of which at most 256 are allowed"

// No object makes the API server, the webhook or lifecycle do more than bounded work.
var _ = attacks(
	huge("a pod with 40,000 labels", create("Pod", "{metadata: {labels: "+numbered(40000)+"}}"), "metadata.labels: 40001 entries, of which at most 256 are allowed"),
	huge("a pod with 257 labels", create("Pod", "{metadata: {labels: "+numbered(256)+"}}"), tooManyLabels),
	huge("a pod with 257 annotations", create("Pod", "{metadata: {annotations: "+numbered(256)+"}}"), tooManyAnnotations),
	huge("a pod with 5,001 variables", create("Pod", variables(5001)), "env: 5001 entries, of which at most 5000 are allowed"),
	huge("a label more", patch(fullPod, `{"metadata":{"labels":{"more":"x"}}}`), tooManyLabels),
	huge("an annotation more", patch(fullPod, `{"metadata":{"annotations":{"more":"x"}}}`), tooManyAnnotations),
	huge("a Job with 257 labels", create("Job", "{metadata: {labels: "+numbered(257)+"}}"), tooManyLabels),
	huge("a template with 40,000 labels", createPods("Job", "{metadata: {labels: "+numbered(40000)+"}}"), tooManyEntries),
	huge("a template with 5,001 variables", createPods("Job", variables(5001)), "env: 5001 entries, of which at most 5000 are allowed"),
	row{class: hugeObjects, name: "a label for another", allowed: true, attack: patch(fullPod, `{"metadata":{"labels":{"more":"x","example.org/key-0":null}}}`)},
	row{class: hugeObjects, name: "another value of a label", allowed: true, attack: patch(fullPod, `{"metadata":{"labels":{"example.org/key-0":"y"}}}`)},
)

func huge(name string, request attempt, want string) row {
	if request.control != nil && strings.HasPrefix(request.text, "patch") {
		*request.control = patch(fullPod, `{"metadata":{"labels":{"example.org/key-0":"y"}}}`)
	}
	return row{class: hugeObjects, name: name, roles: []role{l2, namespaceAdmin}, attack: request, want: want}
}
