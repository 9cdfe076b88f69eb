// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// estimates return about how many bytes a call takes, by function: those whose result can be
// larger than their operands, and those that go through all of a value. A value can be much
// larger than the memory that it takes, where it contains another one several times.
var estimates = map[string]func([]*ast.Term) float64{
	"array.concat":              func(o []*ast.Term) float64 { return valueBytes * (length(o[0]) + length(o[1])) },
	"array.flatten":             estimateValues,
	"concat":                    estimateConcat,
	"glob.match":                estimateGlob,
	"indexof_n":                 estimateIndexes,
	"internal.template_string":  estimateValues,
	"json.filter":               estimateValues,
	"json.marshal":              estimateValues,
	"json.marshal_with_options": estimateValues,
	"json.patch":                estimateValues,
	"json.remove":               estimateValues,
	"json.unmarshal":            func(o []*ast.Term) float64 { return estimateDigits(o[0]) },
	"numbers.range":             func(o []*ast.Term) float64 { return valueBytes * math.Abs(float(o[1])-float(o[0])) },
	"numbers.range_step": func(o []*ast.Term) float64 {
		return valueBytes * math.Abs(float(o[1])-float(o[0])) / max(1, float(o[2]))
	},
	"object.subset":  estimateValues,
	"object.union":   estimateValues,
	"object.union_n": estimateValues,
	"product":        estimateProduct,
	"regex.find_all_string_submatch_n": func(o []*ast.Term) float64 {
		return (1 + occurrences(o[0], ast.InternedTerm("("))) * estimateMatches(o[1], o[2])
	},
	"regex.find_n":      func(o []*ast.Term) float64 { return estimateMatches(o[1], o[2]) },
	"regex.split":       func(o []*ast.Term) float64 { return estimateMatches(o[1], nil) },
	"regex.replace":     func(o []*ast.Term) float64 { return (1 + length(o[0])) * (1 + length(o[2])) },
	"replace":           estimateReplace,
	"sort":              estimateValues,
	"split":             func(o []*ast.Term) float64 { return valueBytes * (1 + occurrences(o[0], o[1])) },
	"sprintf":           estimateSprintf,
	"strings.replace_n": func(o []*ast.Term) float64 { return (1 + length(o[1])) * (1 + termSize(o[0])) },
	"strings.split_n":   func(o []*ast.Term) float64 { return valueBytes * (1 + occurrences(o[0], o[1])) },
	"to_number":         func(o []*ast.Term) float64 { return estimateDigits(o[0]) },
	"units.parse":       func(o []*ast.Term) float64 { return estimateDigits(o[0]) },
	"units.parse_bytes": func(o []*ast.Term) float64 { return estimateDigits(o[0]) },
	"walk":              estimateValues,
	"yaml.marshal":      estimateValues,
	"yaml.unmarshal":    estimateYAML,
}

// maxGlobPaths is the number of ways in which a glob pattern can match a text.
const maxGlobPaths = 1_000_000

// estimateGlob returns more than is allowed for a pattern with too many alternatives: a match tries each
// combination of them, and each position in the text for a wildcard in one.
func estimateGlob(operands []*ast.Term) float64 {
	pattern, _ := operands[0].Value.(ast.String)
	type group struct{ alternatives, positions float64 }
	var open []group
	paths := 1.0
	for i := range len(pattern) {
		if pattern[i] == '{' {
			open = append(open, group{1, 1})
			continue
		}
		if len(open) == 0 {
			continue
		}
		switch last := &open[len(open)-1]; pattern[i] {
		case ',':
			last.alternatives++
		case '*':
			for j := range open {
				open[j].positions = 1 + length(operands[2])
			}
		case '}':
			paths *= last.alternatives * last.positions
			open = open[:len(open)-1]
		}
	}
	if paths > maxGlobPaths {
		return math.Inf(1)
	}
	return length(operands[0]) + length(operands[2])
}

// estimateIndexes estimates a list of indexes, which may overlap.
func estimateIndexes(operands []*ast.Term) float64 {
	return valueBytes * min(length(operands[0]), occurrences(operands[0], operands[1])*length(operands[1]))
}

// estimateMatches estimates the matches of a regular expression: each byte can be one, unless
// the call limits their number.
func estimateMatches(text, most *ast.Term) float64 {
	matches := 1 + length(text)
	if most != nil && float(most) >= 0 {
		matches = min(matches, float(most))
	}
	return valueBytes / 2 * matches
}

// maxProductDigits is the number of digits of a product, and of a number in a text.
const maxProductDigits = 10_000

// estimateProduct returns more than is allowed for a product with too many digits.
func estimateProduct(operands []*ast.Term) float64 {
	digits := 0.0
	count := func(term *ast.Term) {
		if number, ok := term.Value.(ast.Number); ok {
			digits += max(float64(len(number)), math.Log10(math.Abs(float(term))))
		}
	}
	switch values := operands[0].Value.(type) {
	case *ast.Array:
		values.Foreach(count)
	case ast.Set:
		values.Foreach(count)
	}
	if digits > maxProductDigits {
		return math.Inf(1)
	}
	return digits
}

// estimateYAML returns more than is allowed for a text with anchors and aliases: each alias
// repeats what its anchor names, aliases included.
func estimateYAML(operands []*ast.Term) float64 {
	text, _ := operands[0].Value.(ast.String)
	if hasYAMLIndicator(string(text), '&') && hasYAMLIndicator(string(text), '*') {
		return math.Inf(1)
	}
	return estimateDigits(operands[0])
}

// estimateDigits returns more than is allowed for a text with too many digits in a row: the time to convert
// a number grows with their square.
func estimateDigits(term *ast.Term) float64 {
	text, _ := term.Value.(ast.String)
	digits := 0
	for i := range len(text) {
		if digits++; text[i] < '0' || text[i] > '9' {
			digits = 0
		}
		if digits > maxProductDigits {
			return math.Inf(1)
		}
	}
	return float64(len(text))
}

// hasYAMLIndicator reports whether a name follows an indicator where a YAML value can begin.
func hasYAMLIndicator(text string, indicator byte) bool {
	for i := 0; i+1 < len(text); i++ {
		if text[i] == indicator && isYAMLName(text[i+1]) &&
			(i == 0 || text[i-1] >= utf8.RuneSelf || strings.IndexByte(" \t\r\n[{,:", text[i-1]) >= 0) { // some line breaks are no ASCII
			return true
		}
	}
	return false
}

// isYAMLName reports whether a byte may be in the name of an anchor.
func isYAMLName(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

func estimateValues(operands []*ast.Term) (size float64) {
	for _, operand := range operands {
		size += termSize(operand)
	}
	return size
}

func estimateConcat(operands []*ast.Term) float64 {
	return termSize(operands[1]) + length(operands[0])*length(operands[1])
}

func estimateReplace(operands []*ast.Term) float64 {
	return length(operands[0]) + occurrences(operands[0], operands[1])*length(operands[2])
}

func estimateSprintf(operands []*ast.Term) float64 {
	format, _ := operands[0].Value.(ast.String)
	verbs, widths := 0, 0
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		verbs++
		for i++; i < len(format) && strings.IndexByte("+-# 0123456789.[]*", format[i]) >= 0; i++ {
			switch width := leadingNumber(string(format[i:])); {
			case format[i] == '*', width > maxWidth:
				return math.Inf(1)
			default:
				widths += width
			}
		}
	}
	return float64(len(format)+widths) + float64(max(verbs, 1))*termSize(operands[1])
}

// leadingNumber returns the number that a text begins with, or 0.
func leadingNumber(text string) int {
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	number, err := strconv.Atoi(text[:end])
	if err != nil && end > 0 {
		return math.MaxInt
	}
	return number
}

// length returns the length of a string in bytes, or of a collection.
func length(term *ast.Term) float64 {
	switch value := term.Value.(type) {
	case ast.String:
		return float64(len(value))
	case *ast.Array:
		return float64(value.Len())
	case ast.Set:
		return float64(value.Len())
	case ast.Object:
		return float64(value.Len())
	}
	return 0
}

// float returns a number, or 0 for anything else.
func float(term *ast.Term) float64 {
	number, _ := term.Value.(ast.Number)
	value, _ := number.Float64()
	return value
}

// occurrences returns how often a text contains another one.
func occurrences(text, part *ast.Term) float64 {
	whole, _ := text.Value.(ast.String)
	separator, _ := part.Value.(ast.String)
	return float64(strings.Count(string(whole), string(separator)))
}

// termSize returns about how many bytes a value takes as text, and more than is allowed above maxBuiltinSize.
func termSize(term *ast.Term) float64 {
	size := valueSizes(nil).size(term, maxBuiltinSize)
	if size > maxBuiltinSize {
		return math.Inf(1)
	}
	return float64(size)
}
