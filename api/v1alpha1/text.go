// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "strings"

// MaxConditionMessageBytes is the longest message of a condition that Sluice writes, in bytes.
const MaxConditionMessageBytes = 1024

// TruncateText shortens a text to a number of bytes, and drops what is then no valid UTF-8.
func TruncateText(text string, bytes int) string {
	return strings.ToValidUTF8(text[:min(len(text), bytes)], "")
}
