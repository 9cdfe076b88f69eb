// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	"strings"

	"sluice.dev/policies/merge/value"
)

const (
	tokenVolumePrefix = "kube-api-access-"
	tokenMountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// tokenSources are what the ServiceAccount plugin puts into the volume that it
// adds.
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

// A pod that asks for no token gets none, so that it is its author's.
func noToken(at Place) bool { return value.Equal(at.spec()["automountServiceAccountToken"], false) }

// tokenMount is about the fields of a mount: it is the plugin's if all of it is.
func tokenMount(_ Cluster, at Place, _ any) bool {
	mount := at.Parent
	return len(mount) == 3 && !noToken(at) &&
		value.Text(mount["mountPath"]) == tokenMountPath &&
		strings.HasPrefix(value.Text(mount["name"]), tokenVolumePrefix) &&
		value.Equal(mount["readOnly"], true)
}

func tokenVolumeName(c Cluster, at Place, _ any) bool {
	return tokenVolumeSource(c, at, at.Parent["projected"])
}

func tokenVolumeSource(_ Cluster, at Place, v any) bool {
	source := value.Map(v)
	return len(source) == 2 && !noToken(at) &&
		strings.HasPrefix(value.Text(at.Parent["name"]), tokenVolumePrefix) &&
		value.Equal(source["defaultMode"], 0o644) && value.Equal(source["sources"], tokenSources)
}

// serviceAccountAlias is the field's old name, of which the API server makes a
// copy of the new.
func serviceAccountAlias(_ Cluster, at Place, v any) bool {
	name := value.Text(at.spec()["serviceAccountName"])
	return value.Text(v) == name || name == "" && value.Text(v) == "default"
}
