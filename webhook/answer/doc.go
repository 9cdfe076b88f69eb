// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package answer says to the API server what was judged.
//
// Enters: a judgement. Leaves: the response, with a denial of which every line
// is one reason, warnings, and audit annotations.
//
// It never decides anything, and never repeats an object.
package answer
