// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package parameters

import (
	"encoding/json"
	"maps"
	"slices"
)

// Parameter is one thing that may be set of a policy.
type Parameter struct {
	// Name is its field in spec.parameters.
	Name string
	// Kind is what values it has.
	Kind Kind
	// Default is what holds where it is not set.
	Default any
	// Meaning is what it does, in a phrase.
	Meaning string
}

// table has the parameters of each built-in policy that takes any, by name.
var table = map[string][]Parameter{
	"core.devices": {
		{"allowedCapabilities", capabilities, []string{}, "capabilities that containers may add although others' GPUs can be reached by them"},
		{"allowedHostPaths", paths, []string{}, "directories of nodes that pods may mount, with all below; allow none in which pods can make links"},
		{"refuseEnvFrom", Flag, true, "whether a container with a GPU may take no variables by envFrom without a prefix, since these overrule the device plugin's"},
		{"runtimeClasses", names, []string{"nvidia", "nvidia-cdi", "nvidia-legacy"}, "runtime classes that are for pods with GPUs only"},
	},
	"core.limits": {
		{"maximumGraceSeconds", seconds, 3600, "the most time that a pod with GPUs has to end; it holds them until then, whatever its limit"},
		{"minimumGraceSeconds", seconds, 30, "the least time that a pod with GPUs has to end"},
	},
	"core.namespace": {
		{"defaultCPU", quantity, "100m", "how much CPU a container requests that says nothing of it, where its project has a quota of CPU"},
		{"defaultMemory", quantity, "256Mi", "the same of memory"},
		{"ingressNamespaces", names, ingressControllers, "namespaces, by their names, from which pods of projects are reached; others' pods reach none"},
	},
	"core.priority": {
		{"defaultClass", name, "", "the cluster's PriorityClass with globalDefault; empty where it has none"},
		{"refuseOtherClasses", Flag, false, "whether a GPU pod with another priority class than defaultClass and Sluice's own is refused; else the class is replaced, with a warning"},
	},
	"core.quota": {
		{"allowClaims", Flag, false, "whether pods may have resource claims, where claims are never of GPUs"},
	},
	"schedulers.kai": {
		{"krm", adoptOrOwn, "own", "whether Sluice makes KAI-Scheduler's queues itself, or declares projects and departments to kai-resource-management, which then makes them"},
	},
}

// ingressControllers are the namespaces in which the usual ones are installed.
var ingressControllers = []string{
	"contour", "envoy-gateway-system", "haproxy-controller", "ingress-nginx", "istio-ingress", "istio-system", "knative-serving",
	"kong", "kourier-system", "openshift-ingress", "projectcontour", "traefik",
}

// Policies are the names of the policies that take parameters, sorted.
func Policies() []string { return slices.Sorted(maps.Keys(table)) }

// Of are the parameters of a policy, sorted by name; none where it takes none. The
// slice is the caller's.
func Of(policy string) []Parameter { return slices.Clone(table[policy]) }

// Defaults are the parameters of a policy as they are shipped, as a JSON object;
// nil where it takes none.
func Defaults(policy string) []byte {
	if len(table[policy]) == 0 {
		return nil
	}
	fields := make(map[string]any)
	for _, parameter := range table[policy] {
		fields[parameter.Name] = parameter.Default
	}
	text, _ := json.Marshal(fields) // flags, numbers and texts always encode
	return text
}
