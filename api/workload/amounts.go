// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Amount is so many of something that has a name.
type Amount struct {
	// Name is what is counted.
	Name string
	// Count is how many, more than 0.
	Count int64
}

// Amounts are sorted by name, each name once. In JSON they are one object:
// {"nvidia.com/gpu": 2}.
type Amounts []Amount

// Of is how many there are of name; 0 where it is not among them.
func (a Amounts) Of(name string) int64 {
	for i := range a {
		if a[i].Name == name {
			return a[i].Count
		}
	}
	return 0
}

// MarshalJSON writes one object; an empty one for none.
func (a Amounts) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i := range a {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(a[i].Name)
		if err != nil {
			return nil, fmt.Errorf("writing the name %q: %w", a[i].Name, err)
		}
		out = append(append(out, name...), ':')
		out = strconv.AppendInt(out, a[i].Count, 10)
	}
	return append(out, '}'), nil
}

// UnmarshalJSON reads one object of whole numbers.
func (a *Amounts) UnmarshalJSON(raw []byte) error {
	var object map[string]int64
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if err := decoder.Decode(&object); err != nil {
		return fmt.Errorf("amounts %s: want an object of whole numbers: %w", raw, err)
	}
	*a = make(Amounts, 0, len(object))
	for name, count := range object {
		*a = append(*a, Amount{Name: name, Count: count})
	}
	slices.SortFunc(*a, func(x, y Amount) int { return strings.Compare(x.Name, y.Name) })
	return nil
}
