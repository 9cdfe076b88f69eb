// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// LimitRanger records what it set, as in "LimitRanger plugin set: cpu, memory request for
// container main; cpu limit for init container prepare". An author who forges the note
// only makes values of that very object open.
const (
	limitRangerAnnotation = "kubernetes.io/limit-ranger"
	limitRangerPrefix     = "LimitRanger plugin set: "
)

func isLimitRangerAnnotation(_ ClusterDefaults, at Location, v any) bool {
	return at.Entry == limitRangerAnnotation && strings.HasPrefix(AsString(v), limitRangerPrefix)
}

// isFromLimitRange reports whether LimitRanger set this container's limit or request.
func isFromLimitRange(at Location, what string) bool {
	metadata := AsMap(at.Object["metadata"])
	note, ok := strings.CutPrefix(AsString(AsMap(metadata["annotations"])[limitRangerAnnotation]), limitRangerPrefix)
	if !ok {
		return false
	}
	kind := map[string]string{"containers": "container", "initContainers": "init container"}[at.List]
	whose := " " + what + " for " + kind + " " + AsString(at.Container["name"])
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
	return Equal(at.spec()["automountServiceAccountToken"], false)
}

// tokenMount is the rule for the fields of a volume mount: the plugin set all of them or
// none.
func tokenMount(_ ClusterDefaults, at Location, _ any) bool {
	mount := at.Parent
	return len(mount) == 3 && !isTokenDisabled(at) &&
		AsString(mount["mountPath"]) == tokenMountPath &&
		strings.HasPrefix(AsString(mount["name"]), tokenVolumePrefix) &&
		Equal(mount["readOnly"], true)
}

func tokenVolumeName(c ClusterDefaults, at Location, _ any) bool {
	return tokenVolumeSource(c, at, at.Parent["projected"])
}

func tokenVolumeSource(_ ClusterDefaults, at Location, v any) bool {
	source := AsMap(v)
	return len(source) == 2 && !isTokenDisabled(at) &&
		strings.HasPrefix(AsString(at.Parent["name"]), tokenVolumePrefix) &&
		Equal(source["defaultMode"], 0o644) && Equal(source["sources"], tokenSources)
}

// serviceAccountAlias: the API server copies serviceAccountName to its old name.
func serviceAccountAlias(_ ClusterDefaults, at Location, v any) bool {
	name := AsString(at.spec()["serviceAccountName"])
	return AsString(v) == name || name == "" && AsString(v) == "default"
}

// The Priority plugin derives all three fields from the class. It rejects a pod with
// another number or policy, so with a class they are never the author's.
func priorityClassName(c ClusterDefaults, _ Location, v any) bool {
	return c.DefaultPriorityClass != "" && AsString(v) == c.DefaultPriorityClass
}

func priority(_ ClusterDefaults, at Location, v any) bool { return hasPriorityClass(at) || Equal(v, 0) }

func preemptionPolicy(_ ClusterDefaults, at Location, v any) bool {
	return hasPriorityClass(at) || AsString(v) == "PreemptLowerPriority"
}

func hasPriorityClass(at Location) bool { return AsString(at.spec()["priorityClassName"]) != "" }

// tolerations are open as long as all are standard ones.
func tolerations(_ ClusterDefaults, _ Location, v any) bool {
	for _, each := range AsList(v) {
		if !IsStandardToleration(each) {
			return false
		}
	}
	return true
}

// IsStandardToleration reports whether DefaultTolerationSeconds adds this toleration: 300
// seconds on a node that is not ready or unreachable.
func IsStandardToleration(v any) bool {
	m, key := AsMap(v), AsString(AsMap(v)["key"])
	return len(m) == 4 && isStandardTaint(key) &&
		AsString(m["operator"]) == string(corev1.TolerationOpExists) &&
		AsString(m["effect"]) == string(corev1.TaintEffectNoExecute) &&
		Equal(m["tolerationSeconds"], 300)
}

func isStandardTaint(key string) bool {
	return key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}

// SuppressesStandardToleration reports whether a toleration prevents DefaultTolerationSeconds from
// adding the standard one.
func SuppressesStandardToleration(toleration, standard any) bool {
	key, effect := AsString(AsMap(toleration)["key"]), AsString(AsMap(toleration)["effect"])
	return (key == "" || key == AsString(AsMap(standard)["key"])) &&
		(effect == "" || effect == string(corev1.TaintEffectNoExecute))
}
