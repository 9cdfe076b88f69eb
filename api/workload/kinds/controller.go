// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Controller is the kind of the controller that an object says it is part of;
// false where it says none. Anybody may say so of an object of theirs.
func Controller(object map[string]any) (schema.GroupKind, bool) {
	for _, element := range elements(entries(object["metadata"])["ownerReferences"]) {
		reference := entries(element)
		if is, _ := reference["controller"].(bool); !is {
			continue
		}
		version, _ := reference["apiVersion"].(string)
		kind, _ := reference["kind"].(string)
		group, _, grouped := strings.Cut(version, "/")
		if !grouped {
			group = "" // v1
		}
		return schema.GroupKind{Group: group, Kind: kind}, true
	}
	return schema.GroupKind{}, false
}
