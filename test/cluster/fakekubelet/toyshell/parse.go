// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package toyshell

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// notSimulated is the end of the message on syntax that the shell does not have.
const notSimulated = "not in this simulation: its shell has commands, quotes, variables, ;, && and ||, and no pipes, redirections, " +
	"substitutions, loops or functions"

// keywords begin commands that the shell does not have.
var keywords = []string{"if", "then", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "function", "{", "}", "[[", "!"}

// condition is the condition on the last exit code under which a step runs.
type condition int

const (
	always condition = iota
	onSuccess
	onFailure
)

// step is one command.
type step struct {
	when  condition
	words []word
	// discards reports that the output goes to /dev/null.
	discards bool
}

// word is one argument before its variables are replaced.
type word []part

// part is text, or the name of a variable.
type part struct {
	text     string
	variable bool
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)

// discard is the only redirection of the shell.
var discard = regexp.MustCompile(`^>[ \t]*/dev/null\b`)

func isName(text string) bool { return text != "" && variableName.FindString(text) == text }

// parse returns the commands of a script. The error names what the shell does not have.
func parse(script string) ([]step, error) {
	if len(script) > maxText {
		return nil, fmt.Errorf("the script has %d bytes, of at most %d in this simulation", len(script), maxText)
	}
	p := &parser{rest: script}
	for p.rest != "" {
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	p.endStep(always)
	return p.steps, nil
}

type parser struct {
	rest  string
	steps []step

	current step
	word    word
	inWord  bool // also of an empty word in quotes
}

// next reads the next operator, space, quote or text.
func (p *parser) next() error {
	c := p.rest[0]
	switch {
	case c == '\n' || c == ';':
		p.skip(1)
		p.endStep(always)
	case strings.HasPrefix(p.rest, "&&"):
		p.skip(2)
		p.endStep(onSuccess)
	case strings.HasPrefix(p.rest, "||"):
		p.skip(2)
		p.endStep(onFailure)
	case !p.inWord && discard.MatchString(p.rest):
		p.current.discards = true
		p.skip(len(discard.FindString(p.rest)))
	case strings.IndexByte("|&<>()`", c) >= 0:
		return fmt.Errorf("%q: %s", c, notSimulated)
	case c == ' ' || c == '\t' || c == '\r':
		p.skip(1)
		p.endWord()
	case c == '#' && !p.inWord:
		_, p.rest, _ = strings.Cut(p.rest, "\n")
		p.endStep(always)
	case c == '\'':
		text, rest, closed := strings.Cut(p.rest[1:], "'")
		if !closed {
			return fmt.Errorf("a quote %q has no end", c)
		}
		p.rest = rest
		p.add(text)
	case c == '"':
		return p.quoted()
	case c == '\\' && len(p.rest) > 1:
		p.add(p.rest[1:2])
		p.skip(2)
	case c == '$':
		return p.variable()
	default:
		end := strings.IndexAny(p.rest[1:], "\n;|&<>()` \t\r'\"\\$")
		if end < 0 {
			end = len(p.rest) - 1
		}
		p.add(p.rest[:end+1])
		p.skip(end + 1)
	}
	return nil
}

func (p *parser) skip(n int) { p.rest = p.rest[n:] }

func (p *parser) add(text string) {
	p.inWord = true
	if text != "" {
		p.word = append(p.word, part{text: text})
	}
}

// quoted reads a text in double quotes.
func (p *parser) quoted() error {
	p.skip(1)
	p.inWord = true
	for p.rest != "" {
		switch c := p.rest[0]; {
		case c == '"':
			p.skip(1)
			return nil
		case c == '\\' && len(p.rest) > 1 && strings.IndexByte("\"\\$`", p.rest[1]) >= 0:
			p.add(p.rest[1:2])
			p.skip(2)
		case c == '`':
			return fmt.Errorf("%q: %s", c, notSimulated)
		case c == '$':
			if err := p.variable(); err != nil {
				return err
			}
		default:
			end := strings.IndexAny(p.rest[1:], "\"\\$`")
			if end < 0 {
				end = len(p.rest) - 1
			}
			p.add(p.rest[:end+1])
			p.skip(end + 1)
		}
	}
	return fmt.Errorf("a quote %q has no end", '"')
}

// variable reads $NAME, ${NAME} or $?.
func (p *parser) variable() error {
	p.skip(1)
	name := variableName.FindString(p.rest)
	switch {
	case strings.HasPrefix(p.rest, "("):
		return fmt.Errorf("\"$(\": %s", notSimulated)
	case strings.HasPrefix(p.rest, "?"):
		name = "?"
		p.skip(1)
	case strings.HasPrefix(p.rest, "{"):
		inner, rest, closed := strings.Cut(p.rest[1:], "}")
		if !closed || !isName(inner) {
			return fmt.Errorf("\"${%s\": %s", inner, notSimulated)
		}
		name, p.rest = inner, rest
	case name == "":
		p.add("$")
		return nil
	default:
		p.skip(len(name))
	}
	p.inWord = true
	p.word = append(p.word, part{text: name, variable: true})
	return nil
}

func (p *parser) endWord() {
	if p.inWord {
		p.current.words = append(p.current.words, p.word)
	}
	p.word, p.inWord = nil, false
}

// endStep ends a command; the next one runs under a condition.
func (p *parser) endStep(next condition) {
	p.endWord()
	if len(p.current.words) > 0 {
		p.steps = append(p.steps, p.current)
	}
	p.current = step{when: next}
}

// expand replaces the variables of a command. Unlike a real shell it does not split values
// into words, and does not expand patterns of files.
func (s *session) expand(words []word) ([]string, error) {
	var args []string
	total := 0
	for _, w := range words {
		var text strings.Builder
		for _, p := range w {
			value := p.text
			if p.variable && p.text == "?" {
				value = strconv.Itoa(s.last)
			} else if p.variable {
				value = s.env[p.text]
			}
			if total += len(value); total > maxText {
				return nil, fmt.Errorf("the command has more than %d bytes, which this simulation does not run", maxText)
			}
			text.WriteString(value)
		}
		args = append(args, text.String())
	}
	return args, nil
}
