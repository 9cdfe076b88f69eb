// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package value reads JSON values as decoders leave them: map[string]any, []any,
// string, bool, nil and numbers of several Go types.
//
// Enters: such values. Leaves: what they say, and whether two say the same. It
// never changes a value and never panics, whatever it is given.
package value
