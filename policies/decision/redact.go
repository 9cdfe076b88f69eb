// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"strings"

	"sluice.dev/policies/merge/schema"
)

// minSecretLength is the number of bytes from which Redact replaces a value, and minQuoteLength the number from which it
// replaces a part of one: shorter ones occur in any text.
const (
	minSecretLength = 6
	minQuoteLength  = 8
)

// Redacted stands for what [Redact] replaces.
const Redacted = "***"

// Redact replaces values of variables and arguments of containers in the message of a policy, and parts of them, since they
// can be secret and others than the author of the object read the status of a Policy. The message is as short as that of an
// example: the work grows with its length and that of all values.
func Redact(message string, object map[string]any) string {
	if message == "" {
		return message
	}
	quoted := map[string]bool{} // the parts of the message of minQuoteLength: whether a value has them
	for i := range len(message) - minQuoteLength + 1 {
		quoted[message[i:i+minQuoteLength]] = false
	}
	var short []string
	replace := func(value any) {
		text := schema.AsString(value)
		if len(text) >= minSecretLength && len(text) < minQuoteLength {
			short = append(short, text)
		}
		for i := range len(text) - minQuoteLength + 1 {
			if _, occurs := quoted[text[i:i+minQuoteLength]]; occurs {
				quoted[text[i:i+minQuoteLength]] = true
			}
		}
	}
	var visit func(value any)
	visit = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, element := range value {
				visit(element)
			}
		case map[string]any:
			for key, element := range value {
				list, _ := element.([]any)
				switch key {
				case "env":
					for _, variable := range list {
						replace(schema.AsMap(variable)["value"])
					}
				case "args", "command":
					for _, argument := range list {
						replace(argument)
					}
				default:
					visit(element)
				}
			}
		}
	}
	visit(object["spec"])
	message = maskQuotes(message, quoted)
	for _, text := range short {
		message = strings.ReplaceAll(message, text, Redacted)
	}
	return message
}

// maskQuotes replaces each part of a message that consists of quotes.
func maskQuotes(message string, quoted map[string]bool) string {
	var masked strings.Builder
	written := 0
	for i := 0; i+minQuoteLength <= len(message); i++ {
		if !quoted[message[i:i+minQuoteLength]] {
			continue
		}
		masked.WriteString(message[written:i] + Redacted)
		for written = i + minQuoteLength; written < len(message) && quoted[message[written-minQuoteLength+1:written+1]]; {
			written++
		}
		i = written - 1
	}
	masked.WriteString(message[written:])
	return strings.ToValidUTF8(masked.String(), "")
}
