// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"math/big"
	"slices"
)

// meets compares what stands somewhere with what a policy wants there. Numbers are
// equal by value, however they are written: 1 is 1.0. Of a list, what is wanted must
// be among the rest, in any order: people add to lists.
func meets(want, got any) bool {
	switch want := want.(type) {
	case nil:
		return got == nil
	case bool:
		is, ok := got.(bool)
		return ok && is == want
	case string:
		is, ok := got.(string)
		return ok && is == want
	case []any:
		list, ok := got.([]any)
		return ok && !slices.ContainsFunc(want, func(wanted any) bool {
			return !slices.ContainsFunc(list, func(is any) bool { return meets(wanted, is) })
		})
	case map[string]any:
		return meetsObject(want, got)
	}
	a, b := rational(want), rational(got)
	return a != nil && b != nil && a.Cmp(b) == 0
}

// meetsObject compares an object with one of JSON or of YAML.
func meetsObject(want map[string]any, got any) bool {
	switch is := got.(type) {
	case map[string]any:
		if len(is) != len(want) {
			return false
		}
	case map[any]any:
		if len(is) != len(want) {
			return false
		}
	default:
		return false
	}
	for name, value := range want {
		if is, there := below(got, name); !there || !meets(value, is) {
			return false
		}
	}
	return true
}

// rational is a number's value; nil for what is no finite number.
func rational(value any) *big.Rat {
	switch number := value.(type) {
	case int:
		return new(big.Rat).SetInt64(int64(number))
	case int64:
		return new(big.Rat).SetInt64(number)
	case uint64:
		return new(big.Rat).SetUint64(number)
	case float64:
		return new(big.Rat).SetFloat64(number)
	}
	return nil
}
