// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// changes are patches by which members change or end workloads. Most are refused. Each sets the
// annotation to a number.
var changes = []string{
	`{"metadata":{"annotations":{"note":"%d"}}}`,
	`{"metadata":{"annotations":{"note":"%d"}},"spec":{"suspend":true}}`, `{"metadata":{"annotations":{"note":"%d"}},"spec":{"suspend":false}}`,
	`{"metadata":{"annotations":{"note":"%d"}},"spec":{"replicas":0}}`, `{"metadata":{"annotations":{"note":"%d"}},"spec":{"replicas":2}}`,
	`{"metadata":{"annotations":{"note":"%d"},"labels":{"app":"other"}}}`, `{"metadata":{"annotations":{"note":"%d"},"labels":{"sluice.dev/project":"other"}}}`,
	`{"metadata":{"annotations":{"note":"%d","sluice.dev/stopped-until":"2026-01-01T00:00:00Z"}}}`,
	`{"metadata":{"annotations":{"note":"%d","sluice.dev/created-by":"{user}"}}}`,
	`{"metadata":{"annotations":{"note":"%d"},"finalizers":["example.org/stay"]}}`, `{"metadata":{"annotations":{"note":"%d"},"finalizers":null}}`,
}

// forgeries are fragments of pods with which workloads are created.
var forgeries = []string{
	"", "", "", "", `{metadata: {annotations: {sluice.dev/created-by: other@example.org}}}`, `{metadata: {labels: {sluice.dev/project: other}}}`,
	`{spec: {priorityClassName: system-node-critical}}`, `{spec: {priorityClassName: sluice-inference}}`, `{spec: {nodeName: dgx-2}}`,
	`{spec: {schedulerName: other}}`, `{metadata: {annotations: {sluice.dev/ends-at: "2099-01-01T00:00:00Z"}}}`,
	`{spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: "1", sluice.dev/gpu-milli.direct: "1"}}}]}}`,
	`{metadata: {labels: {sluice.dev/workload-type: inference}}}`,
	antiAffinity(ownReplicas), antiAffinity(everybody), antiAffinity(everybody + ", namespaceSelector: {}"),
	mineGate, mineGate, inGroup("g0"), inGroup("g0"), inGroup("g1"),
	antiAffinity("topologyKey: kubernetes.io/os, labelSelector: {}"), antiAffinity(everybody + ", mismatchLabelKeys: [sluice.dev/creator]"),
}

// requestForms are fragments of pods that request an amount of a resource of the node.
var requestForms = []string{
	`{spec: {containers: [{name: main, resources: {requests: {%s: %q}}}]}}`,
	`{spec: {initContainers: [{name: prepare, image: any, resources: {requests: {%s: %q}}}]}}`,
	`{spec: {initContainers: [{name: log, image: any, restartPolicy: Always, resources: {requests: {%s: %q}}}]}}`,
	`{spec: {resources: {requests: {%s: %q}}}}`,
	`{spec: {resources: {limits: {%s: %q}}}}`,
	`{spec: {containers: [{name: main, resources: {limits: {%s: %q}}}]}}`,
}

// randomRequests is a fragment of a pod that requests nothing of the node, or up to more than all.
func randomRequests(random *rand.Rand) string {
	if random.IntN(2) == 0 {
		return ""
	}
	resource, amount := "cpu", strconv.Itoa(1+random.IntN(256))
	if random.IntN(3) == 0 {
		resource, amount = "memory", strconv.Itoa(1+random.IntN(1100))+"Gi"
	}
	return fmt.Sprintf(requestForms[random.IntN(len(requestForms))], resource, amount)
}

// randomClaims changes some new objects: a claim gets the name that an existing StatefulSet has for its own one, a StatefulSet gets the
// name for which a claim exists and may delete its claims, and a pod mounts a claim, which it returns. The caller holds the lock.
func (s *simulation) randomClaims(
	kind, namespace, name string, random *rand.Rand,
) (newName string, fragments []string, mounted *workload) {
	existing := s.workloads[namespace]
	var other *workload
	if len(existing) > 0 {
		other = existing[random.IntN(len(existing))]
	}
	newName = name
	isClaim := other != nil && other.object.GetKind() == "PersistentVolumeClaim"
	switch kind {
	case "PersistentVolumeClaim":
		if other != nil && other.object.GetKind() == "StatefulSet" {
			newName = "data-" + other.object.GetName() + "-" + strconv.Itoa(random.IntN(2))
		}
		if newName == name || s.byName[newName] != nil {
			newName = "data-" + name + "-0"
		}
	case "StatefulSet":
		if isClaim {
			if taken := strings.Split(other.object.GetName(), "-")[1]; s.byName[taken] == nil {
				newName = taken
			}
		}
		fragments = append(fragments, withTemplate([]string{deleteClaims, "replicas: 1"}[random.IntN(2)]))
	case "Pod":
		if isClaim {
			mounted = other
			fragments = append(fragments, "{spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: "+other.object.GetName()+"}}]}}")
		}
	}
	return newName, fragments, mounted
}

// touchClaims marks the claims that a StatefulSet may delete: those of its creator, and all if its creator may delete them himself. The
// caller holds the lock.
func (s *simulation) touchClaims(set *workload) {
	for _, w := range s.workloads[set.object.GetNamespace()] {
		if set.object.GetKind() == "StatefulSet" && w.object.GetKind() == "PersistentVolumeClaim" &&
			strings.HasPrefix(w.object.GetName(), "data-"+set.object.GetName()+"-") && (w.creator == set.creator || set.creator.all) {
			w.touched = true
		}
	}
}
