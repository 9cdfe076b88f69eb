// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package defaulted

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/policies/merge/schema"
)

// LimitRanger records what it set, as in "LimitRanger plugin set: cpu, memory request for
// container main; cpu limit for init container prepare". An author who forges the note
// only makes values of that very object open.
const (
	limitRangerAnnotation = "kubernetes.io/limit-ranger"
	limitRangerPrefix     = "LimitRanger plugin set: "
)

func isLimitRangerAnnotation(_ Cluster, at Location, v any) bool {
	return at.Entry == limitRangerAnnotation && strings.HasPrefix(schema.AsString(v), limitRangerPrefix)
}

// isFromLimitRange reports whether LimitRanger set this container's limit or request.
func isFromLimitRange(at Location, what string) bool {
	metadata := schema.AsMap(at.Object["metadata"])
	note, ok := strings.CutPrefix(schema.AsString(schema.AsMap(metadata["annotations"])[limitRangerAnnotation]), limitRangerPrefix)
	if !ok {
		return false
	}
	kind := map[string]string{"containers": "container", "initContainers": "init container"}[at.List]
	whose := " " + what + " for " + kind + " " + schema.AsString(at.Container["name"])
	for clause := range strings.SplitSeq(note, "; ") {
		if names, ok := strings.CutSuffix(clause, whose); ok && slices.Contains(strings.Split(names, ", "), at.Entry) {
			return true
		}
	}
	return false
}

const (
	tokenVolumePrefix = "kube-api-access-"
	tokenMountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// tokenSources are the sources of the volume that the ServiceAccount plugin adds.
var tokenSources = []any{
	map[string]any{"serviceAccountToken": map[string]any{"expirationSeconds": 3607, "path": "token"}},
	map[string]any{"configMap": map[string]any{
		"name":  "kube-root-ca.crt",
		"items": []any{map[string]any{"key": "ca.crt", "path": "ca.crt"}},
	}},
	map[string]any{"downwardAPI": map[string]any{"items": []any{map[string]any{
		"path":     "namespace",
		"fieldRef": map[string]any{"apiVersion": "v1", "fieldPath": "metadata.namespace"},
	}}}},
}

// isTokenDisabled: the plugin adds no token, so a token volume is the author's.
func isTokenDisabled(at Location) bool {
	return schema.Equal(at.spec()["automountServiceAccountToken"], false)
}

// tokenMount is the rule for the fields of a volume mount: the plugin set all of them or
// none.
func tokenMount(_ Cluster, at Location, _ any) bool {
	mount := at.Parent
	return len(mount) == 3 && !isTokenDisabled(at) &&
		schema.AsString(mount["mountPath"]) == tokenMountPath &&
		strings.HasPrefix(schema.AsString(mount["name"]), tokenVolumePrefix) &&
		schema.Equal(mount["readOnly"], true)
}

func tokenVolumeName(c Cluster, at Location, _ any) bool {
	return tokenVolumeSource(c, at, at.Parent["projected"])
}

func tokenVolumeSource(_ Cluster, at Location, v any) bool {
	source := schema.AsMap(v)
	return len(source) == 2 && !isTokenDisabled(at) &&
		strings.HasPrefix(schema.AsString(at.Parent["name"]), tokenVolumePrefix) &&
		schema.Equal(source["defaultMode"], 0o644) && schema.Equal(source["sources"], tokenSources)
}

// serviceAccountAlias: the API server copies serviceAccountName to its old name.
func serviceAccountAlias(_ Cluster, at Location, v any) bool {
	name := schema.AsString(at.spec()["serviceAccountName"])
	return schema.AsString(v) == name || name == "" && schema.AsString(v) == "default"
}

// The Priority plugin derives all three fields from the class. It rejects a pod with
// another number or policy, so with a class they are never the author's.
func priorityClassName(c Cluster, _ Location, v any) bool {
	return c.DefaultPriorityClass != "" && schema.AsString(v) == c.DefaultPriorityClass
}

func priority(_ Cluster, at Location, v any) bool { return hasPriorityClass(at) || schema.Equal(v, 0) }

func preemptionPolicy(_ Cluster, at Location, v any) bool {
	return hasPriorityClass(at) || schema.AsString(v) == "PreemptLowerPriority"
}

func hasPriorityClass(at Location) bool { return schema.AsString(at.spec()["priorityClassName"]) != "" }

// tolerations are open as long as all are standard ones.
func tolerations(_ Cluster, _ Location, v any) bool {
	for _, each := range schema.AsList(v) {
		if !IsStandardToleration(each) {
			return false
		}
	}
	return true
}

// IsStandardToleration reports whether DefaultTolerationSeconds adds this toleration: 300
// seconds on a node that is not ready or unreachable.
func IsStandardToleration(v any) bool {
	m, key := schema.AsMap(v), schema.AsString(schema.AsMap(v)["key"])
	return len(m) == 4 && isStandardTaint(key) &&
		schema.AsString(m["operator"]) == string(corev1.TolerationOpExists) &&
		schema.AsString(m["effect"]) == string(corev1.TaintEffectNoExecute) &&
		schema.Equal(m["tolerationSeconds"], 300)
}

func isStandardTaint(key string) bool {
	return key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}

// SuppressesStandard reports whether a toleration prevents DefaultTolerationSeconds from
// adding the standard one.
func SuppressesStandard(toleration, standard any) bool {
	key, effect := schema.AsString(schema.AsMap(toleration)["key"]), schema.AsString(schema.AsMap(toleration)["effect"])
	return (key == "" || key == schema.AsString(schema.AsMap(standard)["key"])) &&
		(effect == "" || effect == string(corev1.TaintEffectNoExecute))
}
