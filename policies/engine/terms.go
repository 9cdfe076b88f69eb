// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
)

// termOf is a JSON value as policies see it.
func termOf(value any) *ast.Term {
	switch value := value.(type) {
	case nil:
		return ast.InternedNullTerm
	case bool:
		return ast.InternedTerm(value)
	case string:
		return keyTerm(value)
	case int64, float64, json.Number:
		return numberTerm(numberText(value))
	case []any:
		if len(value) == 0 {
			return ast.InternedEmptyArray
		}
		elements := make([]*ast.Term, len(value))
		for i, element := range value {
			elements[i] = termOf(element)
		}
		return ast.NewTerm(ast.NewArray(elements...))
	case map[string]any:
		if len(value) == 0 {
			return ast.InternedEmptyObject
		}
		pairs := make([][2]*ast.Term, 0, len(value))
		for key, field := range value {
			pairs = append(pairs, [2]*ast.Term{keyTerm(key), termOf(field)})
		}
		return ast.NewTerm(ast.NewObject(pairs...))
	}
	// Whoever composed the object took another of Go's types.
	if other, err := ast.InterfaceToValue(value); err == nil {
		return ast.NewTerm(other)
	}
	return ast.StringTerm(fmt.Sprint(value))
}

func numberTerm(text string) *ast.Term {
	if known := ast.InternedIntNumberTermFromString(text); known != nil {
		return known
	}
	return ast.NewTerm(ast.Number(text))
}

// numberText is how a number is written; empty for all else.
func numberText(value any) string {
	switch value := value.(type) {
	case int64:
		return strconv.FormatInt(value, 10)
	case json.Number:
		return string(value)
	case float64:
		if text, err := json.Marshal(value); err == nil {
			return string(text)
		}
	}
	return ""
}

// commonTerms are the strings that nearly every pod has, converted once for all.
// They are shared and must never be changed.
var commonTerms = func() map[string]*ast.Term {
	terms := make(map[string]*ast.Term)
	for _, text := range []string{
		// An admission review.
		"kind", "apiVersion", "request", "uid", "requestKind", "resource", "requestResource", "subResource",
		"group", "version", "name", "namespace", "operation", "userInfo", "username", "groups", "extra",
		"object", "oldObject", "dryRun", "options", "CREATE", "UPDATE", "CONNECT", "DELETE", "pods", "v1", "apps/v1",
		"fieldManager", "fieldValidation", "CreateOptions", "UpdateOptions", "meta.k8s.io/v1", "Pod",
		// Metadata.
		"metadata", "generateName", "creationTimestamp", "labels", "annotations", "ownerReferences",
		"blockOwnerDeletion", "controller", "resourceVersion", "generation", "finalizers",
		// A pod.
		"spec", "status", "containers", "initContainers", "ephemeralContainers", "volumes", "image", "imagePullPolicy",
		"command", "args", "env", "envFrom", "value", "valueFrom", "fieldRef", "fieldPath", "secretKeyRef",
		"configMapKeyRef", "key", "optional", "ports", "containerPort", "hostPort", "protocol", "TCP", "UDP", "resources",
		"limits", "requests", "claims", "cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "volumeMounts",
		"mountPath", "subPath", "readOnly", "livenessProbe", "readinessProbe", "startupProbe", "httpGet", "path", "port",
		"scheme", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold",
		"exec", "tcpSocket", "lifecycle", "preStop", "securityContext", "runAsUser", "runAsGroup", "runAsNonRoot",
		"fsGroup", "capabilities", "drop", "add", "privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem",
		"seccompProfile", "type", "RuntimeDefault", "terminationMessagePath", "terminationMessagePolicy",
		"/dev/termination-log", "File", "Always", "IfNotPresent", "Never", "OnFailure", "restartPolicy",
		"terminationGracePeriodSeconds", "dnsPolicy", "ClusterFirst", "serviceAccountName", "serviceAccount", "default",
		"nodeName", "nodeSelector", "affinity", "nodeAffinity", "podAffinity", "podAntiAffinity", "tolerations",
		"operator", "Exists", "Equal", "In", "NotIn", "effect", "NoSchedule", "NoExecute", "tolerationSeconds",
		"requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution",
		"nodeSelectorTerms", "matchExpressions", "matchLabels", "matchFields", "values", "weight", "preference",
		"topologyKey", "topologySpreadConstraints", "priorityClassName", "priority", "preemptionPolicy",
		"PreemptLowerPriority", "schedulerName", "default-scheduler", "schedulingGates", "enableServiceLinks",
		"hostNetwork", "hostPID", "hostIPC", "hostPath", "emptyDir", "medium", "sizeLimit", "configMap", "secret",
		"secretName", "items", "defaultMode", "projected", "sources", "serviceAccountToken", "expirationSeconds",
		"downwardAPI", "persistentVolumeClaim", "claimName", "runtimeClassName", "resourceClaims", "kube-root-ca.crt",
		"ca.crt", "token", "phase", "Pending", "qosClass",
		// What stands beside the object.
		"review", "workload", "project", "department", "nodePools", "now", "use", "parameters", "",
	} {
		terms[text] = ast.NewTerm(ast.String(text))
	}
	return terms
}()

// keyTerm is the term of a key, shared where it is common.
func keyTerm(key string) *ast.Term {
	if known, ok := commonTerms[key]; ok {
		return known
	}
	return ast.NewTerm(ast.String(key))
}
