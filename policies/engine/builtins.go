// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// OPA cannot stop a call of a built-in function, except of numbers.range, concat, replace, strings.replace_n, regex.replace and
// net.cidr_expand. An honest policy passes what members write to the others. So those with which one call would take longer than a
// policy may are called within these limits only. The table in docs/developer/performance.md has what each takes.
const (
	// maxText is the length of a text, in bytes. Kubernetes allows 256 KiB for all annotations of an object.
	maxText = 128 << 10
	// maxSearched is that of a text in which a regular expression is searched.
	maxSearched = 64 << 10
	// maxExponent is the exponent of a number in a text: arithmetic with a number writes its digits out. No float64 has a larger one.
	maxExponent = 400
	// maxComparisons are those of the elements of two lists.
	maxComparisons = 1_000_000
	// maxWidth is a width or a precision in the format of sprintf.
	maxWidth = 1000
	// maxGlobPaths is the number of ways in which a glob pattern can match a text.
	maxGlobPaths = 1_000_000
)

// LimitError reports that a built-in function was not called, because it would take longer than a policy may.
type LimitError struct{ message string }

func (e *LimitError) Error() string { return e.message }

// callLimits are the checks in front of the functions, each of which returns why the function is not called.
var callLimits = map[string]func(operands []*ast.Term) error{
	"glob.match":                       limitGlob,
	"json.unmarshal":                   limitNumbers,
	"object.subset":                    limitComparisons,
	"re_match":                         limitTexts(maxSearched),
	"regex.find_all_string_submatch_n": limitTexts(maxSearched),
	"regex.find_n":                     limitTexts(maxSearched),
	"regex.is_valid":                   limitTexts(maxSearched),
	"regex.match":                      limitTexts(maxSearched),
	"regex.split":                      limitTexts(maxSearched),
	"regex.template_match":             limitTexts(maxSearched),
	"sprintf":                          limitWidths,
	"to_number":                        limitNumbers,
	"units.parse":                      limitNumbers,
	"units.parse_bytes":                limitNumbers,
	"yaml.is_valid":                    limitTexts(maxText),
	"yaml.unmarshal":                   limitYAML,
}

// limitCalls puts the checks in front of the functions of OPA in this process.
var limitCalls = sync.OnceFunc(func() {
	for name, check := range callLimits {
		call := topdown.GetBuiltin(name)
		topdown.RegisterBuiltinFunc(name, func(ctx topdown.BuiltinContext, operands []*ast.Term, found func(*ast.Term) error) error {
			if err := check(operands); err != nil {
				return &LimitError{name + ": " + err.Error()}
			}
			return call(ctx, operands, found)
		})
	}
})

func textOf(operand *ast.Term) string {
	text, _ := operand.Value.(ast.String)
	return string(text)
}

func limitTexts(most int) func([]*ast.Term) error {
	return func(operands []*ast.Term) error {
		for i, operand := range operands {
			if length := len(textOf(operand)); length > most {
				return fmt.Errorf("operand %d has %d bytes, and %d are allowed", i+1, length, most)
			}
		}
		return nil
	}
}

var exponents = regexp.MustCompile(`[0-9.][eE][+-]?[0-9]+`)

// limitNumbers limits the numbers in a text.
func limitNumbers(operands []*ast.Term) error {
	if err := limitTexts(maxText)(operands); err != nil {
		return err
	}
	text := textOf(operands[0])
	for _, found := range exponents.FindAllString(text, -1) {
		exponent := strings.TrimLeft(found[1:], "eE+-")
		if value, err := strconv.Atoi(exponent); err != nil || value > maxExponent {
			return fmt.Errorf("a number has the exponent %.20s, and at most %d is allowed", exponent, maxExponent)
		}
	}
	return nil
}

// yamlAnchor and yamlAlias find the names of anchors and aliases where a YAML value can begin.
var (
	yamlAnchor = regexp.MustCompile(`(?:^|[\s\[{,:]|[^\x00-\x7F])&[\w-]`) // some line breaks are no ASCII
	yamlAlias  = regexp.MustCompile(`(?:^|[\s\[{,:]|[^\x00-\x7F])\*[\w-]`)
)

// limitYAML refuses anchors with aliases, too: each alias repeats what its anchor names, aliases included.
func limitYAML(operands []*ast.Term) error {
	if text := textOf(operands[0]); yamlAnchor.MatchString(text) && yamlAlias.MatchString(text) {
		return errors.New("YAML with aliases is not allowed")
	}
	return limitNumbers(operands)
}

// limitGlob limits the alternatives of a pattern: a match tries each combination of them, and each position in the text for a
// wildcard in one.
func limitGlob(operands []*ast.Term) error {
	pattern, text := textOf(operands[0]), textOf(operands[2])
	paths, depth, alternatives, positions := 1, 0, 1, 1
	for i := range len(pattern) {
		switch inGroup := depth > 0; {
		case pattern[i] == '{':
			depth++
		case inGroup && pattern[i] == ',':
			alternatives++
		case inGroup && pattern[i] == '*':
			positions = 1 + len(text)
		case pattern[i] == '}':
			depth--
			paths *= alternatives * positions
			alternatives, positions = 1, 1
		}
		if paths > maxGlobPaths {
			return fmt.Errorf("the pattern has too many alternatives for a text of %d bytes", len(text))
		}
	}
	return limitTexts(maxText)(operands)
}

func limitComparisons(operands []*ast.Term) error {
	whole, ok := operands[0].Value.(*ast.Array)
	part, alsoOK := operands[1].Value.(*ast.Array)
	if ok && alsoOK && whole.Len()*part.Len() > maxComparisons {
		return fmt.Errorf("lists of %d and %d elements are too long to compare", whole.Len(), part.Len())
	}
	return nil
}

// widths finds the widths and precisions of a format.
var widths = regexp.MustCompile(`%[-+# 0-9.\[\]]*(\*|[0-9]{4,})`)

func limitWidths(operands []*ast.Term) error {
	if found := widths.FindString(textOf(operands[0])); found != "" {
		return fmt.Errorf("the width %.20q is not allowed: at most %d, and none from an argument", found, maxWidth-1)
	}
	return limitTexts(maxText)(operands[:1])
}
