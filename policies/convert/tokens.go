// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
)

// maxNesting is the number of brackets that a text may nest: parsers need time and stack for each.
const maxNesting = 200

// maxRegoBytes is the size limit of a policy's Rego.
const maxRegoBytes = 256 << 10

// token is a part of a Rego text: an identifier, or anything between two of them.
type token struct {
	text       string
	identifier bool
}

// tokenize splits a Rego text at its identifiers. Strings and comments are never identifiers.
func tokenize(rego string) []token {
	var tokens []token
	start := 0
	flush := func(end int) {
		if end > start {
			tokens = append(tokens, token{text: rego[start:end]})
		}
	}
	for i := 0; i < len(rego); {
		switch b := rego[i]; {
		case b == '"' || b == '`':
			i = stringEnd(rego, i)
		case b == '#':
			if end := strings.IndexByte(rego[i:], '\n'); end >= 0 {
				i += end
			} else {
				i = len(rego)
			}
		case isLetter(b):
			flush(i)
			end := i
			for end < len(rego) && (isLetter(rego[end]) || rego[end] >= '0' && rego[end] <= '9') {
				end++
			}
			tokens = append(tokens, token{text: rego[i:end], identifier: true})
			i, start = end, end
		case b >= '0' && b <= '9':
			// A number such as 1e3 has letters.
			for i < len(rego) && (isLetter(rego[i]) || rego[i] >= '0' && rego[i] <= '9') {
				i++
			}
		default:
			i++
		}
	}
	flush(len(rego))
	return tokens
}

func isLetter(b byte) bool { return b == '_' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }

// stringEnd returns the position after the string that begins at start.
func stringEnd(rego string, start int) int {
	quote := rego[start]
	for i := start + 1; i < len(rego); i++ {
		switch {
		case rego[i] == '\\' && quote == '"':
			i++
		case rego[i] == quote:
			return i + 1
		}
	}
	return len(rego)
}

// hasTemplateString reports whether a text has a string with expressions in it, such as $"{x}".
func hasTemplateString(rego string) bool {
	for i := 0; i < len(rego); {
		switch b := rego[i]; {
		case b == '$' && i+1 < len(rego) && (rego[i+1] == '"' || rego[i+1] == '`'):
			return true
		case b == '"' || b == '`':
			i = stringEnd(rego, i)
		case b == '#':
			end := strings.IndexByte(rego[i:], '\n')
			if end < 0 {
				return false
			}
			i += end
		default:
			i++
		}
	}
	return false
}

// afterDot reports whether the identifier at an index is the field of another one.
func afterDot(tokens []token, index int) bool {
	return index > 0 && !tokens[index-1].identifier && strings.HasSuffix(tokens[index-1].text, ".")
}

// renameIdentifiers renames all variables and rules of these names. It keeps the meaning, also of local variables that hide
// rules, if no new name occurs in the text.
func renameIdentifiers(rego string, names map[string]string) string {
	tokens := tokenize(rego)
	var b strings.Builder
	for i, t := range tokens {
		if renamed, ok := names[t.text]; ok && t.identifier && !afterDot(tokens, i) {
			b.WriteString(renamed)
		} else {
			b.WriteString(t.text)
		}
	}
	return b.String()
}

// identifiers returns all identifiers of a text.
func identifiers(rego string) map[string]bool {
	found := make(map[string]bool)
	for _, t := range tokenize(rego) {
		if t.identifier {
			found[t.text] = true
		}
	}
	return found
}

// bracketDepth returns how deep the brackets of a text nest, at most; those in strings count too.
func bracketDepth(text string) int {
	depth, deepest := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '{', '[', '(':
			depth++
			deepest = max(deepest, depth)
		case '}', ']', ')':
			depth = max(depth-1, 0)
		}
	}
	return deepest
}

// checkSize returns an error for a text that would need too much time.
func checkSize(rego string) error {
	switch depth := bracketDepth(rego); {
	case len(rego) > maxRegoBytes:
		return fmt.Errorf("the Rego has %d bytes; %d are allowed", len(rego), maxRegoBytes)
	case depth > maxNesting:
		return fmt.Errorf("the Rego nests %d brackets; %d are allowed", depth, maxNesting)
	}
	return nil
}

// formatRego returns a module in the layout of opa fmt, in another version of the language.
func formatRego(rego string, from, to ast.RegoVersion) (formatted string, err error) {
	if err := checkSize(rego); err != nil {
		return "", err
	}
	// The formatter expects modules that compile.
	defer func() {
		if cause := recover(); cause != nil {
			formatted, err = "", fmt.Errorf("the Rego cannot be formatted: %v", cause)
		}
	}()
	raw, err := format.SourceWithOpts("policy", []byte(rego), format.Opts{
		RegoVersion: to, ParserOptions: &ast.ParserOptions{RegoVersion: from}, DropRedundantDirectiveImports: true,
	})
	return string(raw), err
}

// literal returns a value as Rego. Every JSON text is one.
func literal(value any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "null" // decoded documents always encode
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// identifier returns a name as an identifier of Rego.
func identifier(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch {
		case isLetter(name[i]) || name[i] >= '0' && name[i] <= '9':
			b.WriteByte(name[i])
		default:
			b.WriteByte('_')
		}
	}
	text := strings.ToLower(strings.Trim(b.String(), "_"))
	if text == "" || text[0] >= '0' && text[0] <= '9' || ast.IsKeyword(text) || ast.ReservedVars.Contains(ast.Var(text)) {
		return "policy_" + text
	}
	return text
}

// comment returns a text as comment lines.
func comment(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("# " + strings.Map(printable, strings.TrimRight(line, "\r\n")) + "\n")
	}
	return b.String()
}

// printable replaces control characters, which could end a comment.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
		return ' '
	}
	return r
}
