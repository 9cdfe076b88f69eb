// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// The limits of one call of a built-in function. OPA cannot stop a call, so its memory is
// limited by what it is called with and what it returns.
const (
	// maxBuiltinText is the length of a string, in bytes.
	maxBuiltinText = 1 << 20
	// maxBuiltinSize is the estimated size of a result, and the size of a value that a call
	// goes through, in bytes.
	maxBuiltinSize = 8 << 20
	// valueBytes is about what a value in a list takes.
	valueBytes = 64
	// maxNumberText is the length of a number's text: OPA computes with all digits.
	maxNumberText = 400
	// maxWidth is a width or a precision in the format of sprintf.
	maxWidth = 1000
)

// limitBuiltins puts the limits before the built-in functions of OPA in this process: those
// with an estimate, and those with which a policy can make a value larger step by step.
var limitBuiltins = sync.OnceFunc(func() {
	names := slices.AppendSeq([]string{
		"base64.encode", "base64url.encode", "base64url.encode_no_pad", "div", "format_int", "hex.encode", "minus", "mul", "plus", "rem",
		"round", "urlquery.encode", "urlquery.encode_object",
	}, maps.Keys(estimates))
	names = slices.AppendSeq(names, maps.Keys(patternOperands))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		call := topdown.GetBuiltin(name)
		topdown.RegisterBuiltinFunc(name, func(ctx topdown.BuiltinContext, operands []*ast.Term, found func(*ast.Term) error) error {
			if err := checkOperands(name, operands); err != nil {
				return err
			}
			return call(ctx, operands, func(result *ast.Term) error {
				if result != nil {
					if text, ok := result.Value.(ast.String); ok && len(text) > maxBuiltinText {
						return fmt.Errorf("the result has %d bytes, and %d are allowed", len(text), maxBuiltinText)
					}
				}
				return found(result)
			})
		})
	}
})

// checkOperands returns why a function is not called with these operands, or nil.
func checkOperands(name string, operands []*ast.Term) error {
	for i, operand := range operands {
		switch value := operand.Value.(type) {
		case ast.String:
			if len(value) > maxBuiltinText {
				return fmt.Errorf("operand %d has %d bytes, and %d are allowed", i+1, len(value), maxBuiltinText)
			}
		case ast.Number:
			if len(value) > maxNumberText {
				return fmt.Errorf("operand %d: the number has %d characters, and %d are allowed", i+1, len(value), maxNumberText)
			}
		}
	}
	if i, ok := patternOperands[name]; ok {
		pattern, _ := operands[i].Value.(ast.String)
		size := patternSize(string(pattern))
		if size > maxPatternSize {
			return fmt.Errorf("operand %d: the pattern has more than %d steps with its repetitions", i+1, maxPatternSize)
		}
		for j, operand := range operands {
			if j != i && float64(size)*length(operand) > maxPatternWork {
				return fmt.Errorf("the call is too large: operand %d has %.0f bytes, too many for a pattern of %d steps", j+1, length(operand), size)
			}
		}
	}
	estimate, ok := estimates[name]
	if !ok {
		return nil
	}
	if size := estimate(operands); size > maxBuiltinSize {
		return fmt.Errorf("the call is too large: it would take more than %d MiB", maxBuiltinSize>>20)
	}
	return nil
}

// maxPatternSize is the number of steps of a regular expression. A compiled one takes about 200
// bytes for each, and stays in [patternCache].
const maxPatternSize = 10_000

// maxPatternWork is the number of steps of a regular expression times the bytes of the text: a match may try each
// step at each byte.
const maxPatternWork = 1 << 25

// patternOperands are the operands that are regular expressions, by function.
var patternOperands = map[string]int{
	"re_match": 0, "regex.find_all_string_submatch_n": 0, "regex.find_n": 0, "regex.is_valid": 0, "regex.match": 0, "regex.replace": 1,
	"regex.split": 0, "regex.template_match": 0,
}

// patternSize returns about how many steps a regular expression has.
func patternSize(pattern string) int {
	if len(pattern) > maxPatternSize || !strings.Contains(pattern, "{") {
		return len(pattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return len(pattern) // the function returns the error
	}
	return steps(parsed)
}

// steps returns the number of steps of a parsed expression, with its repetitions.
func steps(e *syntax.Regexp) int {
	number := 1 + len(e.Rune)
	if e.Op == syntax.OpCharClass {
		number = 1
	}
	for _, part := range e.Sub {
		number += steps(part)
	}
	if e.Op == syntax.OpRepeat {
		number *= max(e.Min, e.Max, 1)
	}
	return number
}
