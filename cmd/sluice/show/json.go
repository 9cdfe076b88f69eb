// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
)

// JSON writes value for a machine, indented. What a terminal would act upon is
// escaped, so that the text is harmless there and still says exactly the same.
func JSON(output io.Writer, value any) error {
	var raw bytes.Buffer
	encoder := json.NewEncoder(&raw)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	var out strings.Builder
	for _, r := range raw.String() {
		if r == '\n' || strconv.IsGraphic(r) {
			out.WriteRune(r)
			continue
		}
		// encoding/json leaves alone what lies beyond the first 32 characters.
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	_, err := io.WriteString(output, out.String())
	return err
}
