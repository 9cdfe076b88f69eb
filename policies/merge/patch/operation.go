// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"strings"
)

// Operation is one step of a patch.
type Operation struct {
	// Op is add, remove or replace.
	Op string `json:"op"`
	// Path is a JSON pointer (RFC 6901).
	Path string `json:"path"`
	// Value is what is added or put in place; a removal has none.
	Value any `json:"value"`
}

// MarshalJSON leaves out the value of a removal, and only of that: null is a value
// too.
func (o Operation) MarshalJSON() ([]byte, error) {
	if o.Op == "remove" {
		return json.Marshal(map[string]string{"op": o.Op, "path": o.Path})
	}
	type plain Operation
	return json.Marshal(plain(o))
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// escaped is a key within a JSON pointer.
func escaped(key string) string {
	if strings.ContainsAny(key, "~/") {
		return escaper.Replace(key)
	}
	return key
}
