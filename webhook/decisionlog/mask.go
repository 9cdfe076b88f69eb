// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decisionlog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The places that are masked by default: their texts can be secret. DefaultUnmasked are exceptions, which decisions depend on.
var (
	DefaultMask = []string{
		"/**/env/*/value", "/**/args", "/**/command", "/**/annotations", "/**/httpHeaders/*/value", "/**/volumeAttributes",
		"/**/flexVolume/options", "/**/rayStartParams", "/**/entrypoint", "/**/runtimeEnvYAML", "/**/serveConfigV2",
		"/**/parameters/*/value", "/**/parameters/*/default", "/**/withItems", "/**/script/source", "/**/resource/manifest", "/**/http",
		"/request/userInfo/extra",
	}
	DefaultUnmasked = []string{
		"/**/annotations/sluice.dev~1*", "/**/annotations/gpu-*", "/**/annotations/kai.scheduler~1*", "/**/annotations/runai~1*",
		"/**/env/NVIDIA_*/value", "/**/env/CUDA_*/value", "/**/env/RUNAI_*/value",
	}
)

// MaxPatterns is the largest number of patterns in one list.
const MaxPatterns = 100

const (
	// maxPatternBytes is the length of a pattern.
	maxPatternBytes = 512
	// maxPatternSteps is the number of steps of a pattern, and maxAnySteps that of the steps **, which multiply the work.
	maxPatternSteps = 16
	maxAnySteps     = 2
)

// anySteps in a pattern matches any number of steps, also none.
const anySteps = "**"

// Pattern matches places in the input of a decision: the JSON pointer of a place, in which * stands for any characters of one
// step, and the step ** for any number of steps. An element of a list matches by its index, and by its name if it has one.
type Pattern struct {
	steps []string
}

// ParsePattern parses a pattern such as /**/env/*/value. The error says what is allowed.
func ParsePattern(text string) (Pattern, error) {
	if !strings.HasPrefix(text, "/") || len(text) < 2 || len(text) > maxPatternBytes {
		return Pattern{}, fmt.Errorf("want a JSON pointer of at most %d bytes, in which * stands for any text of a step and ** for any steps, "+
			"such as /object/spec/containers/*/env/*/value", maxPatternBytes)
	}
	steps := strings.Split(text[1:], "/")
	if len(steps) > maxPatternSteps {
		return Pattern{}, fmt.Errorf("has %d steps; at most %d are allowed", len(steps), maxPatternSteps)
	}
	if n := count(steps, anySteps); n > maxAnySteps {
		return Pattern{}, fmt.Errorf("has %d steps **; at most %d are allowed", n, maxAnySteps)
	}
	for i, step := range steps {
		if strings.Contains(step, "~") && strings.Count(step, "~") != strings.Count(step, "~0")+strings.Count(step, "~1") {
			return Pattern{}, fmt.Errorf("step %q: write ~1 for / and ~0 for ~", step)
		}
		if step == "" {
			return Pattern{}, fmt.Errorf("step %d is empty", i+1)
		}
		if step != anySteps && strings.Count(step, "*") > 1 {
			return Pattern{}, fmt.Errorf("step %q: at most one * is allowed", step)
		}
		steps[i] = unescapeStep(step)
	}
	if steps[len(steps)-1] == anySteps {
		return Pattern{}, fmt.Errorf("the last step is **; everything below a place is masked without it")
	}
	return Pattern{steps}, nil
}

func count(steps []string, of string) int {
	n := 0
	for _, step := range steps {
		if step == of {
			n++
		}
	}
	return n
}

// parsePatterns parses a list of patterns. The error has the index of the wrong one.
func parsePatterns(texts []string) ([]Pattern, error) {
	if len(texts) > MaxPatterns {
		return nil, fmt.Errorf("%d patterns; at most %d are allowed", len(texts), MaxPatterns)
	}
	patterns := make([]Pattern, len(texts))
	for i, text := range texts {
		var err error
		if patterns[i], err = ParsePattern(text); err != nil {
			return nil, fmt.Errorf("[%d] %q: %w", i, text, err)
		}
	}
	return patterns, nil
}

// step is one step of a path: a key, or the index of an element and its name.
type step struct {
	key, name string
}

// matches reports whether the pattern matches exactly this path.
func (p *Pattern) matches(path []step) bool { return matchSteps(p.steps, path) }

// matchSteps compares from the end, where most places differ.
func matchSteps(pattern []string, path []step) bool {
	for len(pattern) > 0 {
		last := pattern[len(pattern)-1]
		pattern = pattern[:len(pattern)-1]
		if last == anySteps {
			for n := len(path); n >= 0; n-- {
				if matchSteps(pattern, path[:n]) {
					return true
				}
			}
			return false
		}
		if len(path) == 0 || !path[len(path)-1].matches(last) {
			return false
		}
		path = path[:len(path)-1]
	}
	return len(path) == 0
}

func (s *step) matches(pattern string) bool {
	prefix, suffix, isGlob := strings.Cut(pattern, "*")
	if !isGlob {
		return s.key == pattern || s.name != "" && s.name == pattern
	}
	matches := func(text string) bool {
		return len(text) >= len(prefix)+len(suffix) && strings.HasPrefix(text, prefix) && strings.HasSuffix(text, suffix)
	}
	return matches(s.key) || s.name != "" && matches(s.name)
}

// masker replaces the texts of one input by markers. Equal texts have the same marker.
type masker struct {
	mask, unmasked []Pattern
	path           []step
	// inside: a place above is masked.
	inside bool
	// markers are the markers by text, and pointers the places of the masked texts.
	markers  map[string]string
	pointers []string
	// onlyKnown: texts without a marker stay.
	onlyKnown bool
}

// MarkerPrefix begins what stands for a masked text in a record: (masked 1).
const MarkerPrefix = "(masked "

// marker returns what stands for the text with a number.
func marker(number int) string { return MarkerPrefix + strconv.Itoa(number) + ")" }

// IsMarker reports whether a text may stand for a masked one. An author can write such a text too.
func IsMarker(text string) bool { return strings.HasPrefix(text, MarkerPrefix) }

// value returns a value without the texts to mask. It shares what is unchanged.
func (m *masker) value(value any) any {
	if len(m.mask) == 0 {
		return value
	}
	outside := m.inside
	defer func() { m.inside = outside }()
	isHere := func(p Pattern) bool { return p.matches(m.path) }
	if !m.inside {
		m.inside = slices.ContainsFunc(m.mask, isHere)
	}
	if m.inside && slices.ContainsFunc(m.unmasked, isHere) {
		return value
	}
	switch value := value.(type) {
	case string:
		return m.text(value)
	case []any:
		list := make([]any, len(value))
		for i, element := range value {
			fields, _ := element.(map[string]any)
			name, _ := fields["name"].(string)
			list[i] = m.at(step{strconv.Itoa(i), name}, element)
		}
		return list
	case map[string]any:
		fields := make(map[string]any, len(value))
		for _, key := range sortedKeys(value) {
			fields[key] = m.at(step{key: key}, value[key])
		}
		return fields
	}
	return value
}

// below returns the value below several steps.
func (m *masker) below(keys []string, value any) any {
	if len(keys) == 1 {
		fields, _ := value.(map[string]any)
		name, _ := fields["name"].(string)
		return m.at(step{keys[0], name}, value)
	}
	outside := m.inside
	defer func() { m.inside = outside }()
	m.path = append(m.path, step{key: keys[0]})
	defer func() { m.path = m.path[:len(m.path)-1] }()
	m.inside = m.inside || slices.ContainsFunc(m.mask, func(p Pattern) bool { return p.matches(m.path) })
	return m.below(keys[1:], value)
}

// at returns the value below a step.
func (m *masker) at(s step, value any) any {
	m.path = append(m.path, s)
	defer func() { m.path = m.path[:len(m.path)-1] }()
	return m.value(value)
}

func (m *masker) text(text string) string {
	if !m.inside || text == "" {
		return text
	}
	known, ok := m.markers[text]
	switch {
	case m.onlyKnown && ok:
		return known
	case m.onlyKnown:
		return text
	case !ok:
		if m.markers == nil {
			m.markers = make(map[string]string)
		}
		known = marker(len(m.markers) + 1)
		m.markers[text] = known
	}
	var pointer strings.Builder
	for _, s := range m.path {
		pointer.WriteString("/" + escapeStep(s.key))
	}
	m.pointers = append(m.pointers, pointer.String())
	return known
}

var (
	stepEscaper   = strings.NewReplacer("~", "~0", "/", "~1")
	stepUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

func escapeStep(key string) string   { return stepEscaper.Replace(key) }
func unescapeStep(key string) string { return stepUnescaper.Replace(key) }

// SplitPointer returns the steps of a JSON pointer.
func SplitPointer(pointer string) []string {
	steps := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i := range steps {
		steps[i] = unescapeStep(steps[i])
	}
	return steps
}
