// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

// skip moves past a value without building it, and checks it as if it did.
func (d *decoder) skip(depth int) error {
	switch c := d.peek(); c {
	case '{', '[':
		return d.skipNested(c, depth+1)
	case '"':
		_, err := d.skipString()
		return err
	case 't':
		return d.word("true")
	case 'f':
		return d.word("false")
	case 'n':
		return d.word("null")
	default:
		if c == '-' || isDigit(c) {
			return d.skipNumber()
		}
		return d.fault("expected a value")
	}
}

func (d *decoder) skipNested(open byte, depth int) error {
	if depth > maxDepth {
		return ErrTooDeep
	}
	closing := byte(']')
	if open == '{' {
		closing = '}'
	}
	d.at++
	d.space()
	if d.peek() == closing {
		d.at++
		return nil
	}
	for {
		if open == '{' {
			if _, err := d.key(); err != nil {
				return err
			}
		}
		d.space()
		if err := d.skip(depth); err != nil {
			return err
		}
		d.space()
		switch d.peek() {
		case ',':
			d.at++
		case closing:
			d.at++
			return nil
		default:
			return d.fault("expected , or " + string(closing))
		}
	}
}
