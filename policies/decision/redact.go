// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"slices"
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

// redactedFields are the fields whose texts can be secret, at any depth: arguments of containers, of Ray and of Argo, scripts, and
// options of volumes and probes. Of the lists in namedValues that holds for the value of each element, not for its name.
var (
	redactedFields = []string{
		"args", "command", "entrypoint", "manifest", "rayStartParams", "runtimeEnvYAML", "serveConfigV2", "source", "volumeAttributes",
	}
	namedValues = []string{"env", "httpHeaders", "parameters"}
)

// Redact replaces values of variables and arguments of containers in the message of a policy, and parts of them, since they
// can be secret and others than the author of the object read the status of a Policy. The same holds for the other fields in
// which workloads have such texts. The message is as short as that of an example: the work grows with its length and that of
// all values.
func Redact(message string, object map[string]any) string {
	if message == "" {
		return message
	}
	quoted := map[string]bool{} // the parts of the message of minQuoteLength: whether a value has them
	for i := range len(message) - minQuoteLength + 1 {
		quoted[message[i:i+minQuoteLength]] = false
	}
	var short []string
	replace := func(text string) {
		if len(text) >= minSecretLength && len(text) < minQuoteLength {
			short = append(short, text)
		}
		for i := range len(text) - minQuoteLength + 1 {
			if _, occurs := quoted[text[i:i+minQuoteLength]]; occurs {
				quoted[text[i:i+minQuoteLength]] = true
			}
		}
	}
	visitSecrets(object, replace)
	message = maskQuotes(message, quoted)
	for _, text := range short {
		message = strings.ReplaceAll(message, text, Redacted)
	}
	return message
}

// visitSecrets calls a function for each text in a value that can be secret.
func visitSecrets(value any, use func(text string)) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			visitSecrets(element, use)
		}
	case map[string]any:
		for key, element := range value {
			switch list, isList := element.([]any); {
			case slices.Contains(redactedFields, key):
				visitTexts(element, use)
			case slices.Contains(namedValues, key) && isList:
				for _, named := range list {
					visitTexts(schema.AsMap(named)["value"], use)
				}
			default:
				visitSecrets(element, use)
			}
		}
	}
}

// visitTexts calls a function for each text in a value.
func visitTexts(value any, use func(text string)) {
	switch value := value.(type) {
	case string:
		use(value)
	case []any:
		for _, element := range value {
			visitTexts(element, use)
		}
	case map[string]any:
		for _, element := range value {
			visitTexts(element, use)
		}
	}
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
