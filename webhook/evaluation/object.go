// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"fmt"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// DecodeObject decodes an object of an admission request; it returns nil if there is none.
func DecodeObject(raw []byte) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	return object, nil
}
