// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recent keeps what was asked for lately.
//
// Enters: values by their keys, with their sizes. Leaves: those of them that were
// kept or asked for not long ago.
//
// It never holds more of them, nor more bytes, than it was told, whatever is put
// into it.
package recent
