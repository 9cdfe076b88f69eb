// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
)

// maxValues is how many values the answers of one policy may hold, all told.
const maxValues = 1 << 16

// misfit is a value of Rego that is not what a rule must give.
type misfit struct {
	// path leads to the value: overrides.spec.containers[0].
	path string
	why  string
}

func (m *misfit) Error() string { return m.path + ": " + m.why }

// under puts a step before the path of a misfit, on the way out of it.
func under(step string, err error) error {
	var m *misfit
	if errors.As(err, &m) {
		m.path = step + m.path
	}
	return err
}

func unfit(format string, args ...any) error {
	return &misfit{why: fmt.Sprintf(format, args...)}
}

// native turns values of Rego into what encoding/json decodes into, with int64
// for integers.
type native struct {
	// left is how many more values may come.
	left int
}

func (n *native) value(value ast.Value, depth int) (any, error) {
	if n.left--; n.left < 0 {
		return nil, unfit("the answer is too large: more than %d values", maxValues)
	}
	if depth > maxDepth {
		return nil, unfit("the value nests more than %d deep", maxDepth)
	}
	switch value := value.(type) {
	case ast.Null:
		return nil, nil
	case ast.Boolean:
		return bool(value), nil
	case ast.String:
		return string(value), nil
	case ast.Number:
		return nativeNumber(string(value))
	case *ast.Array:
		return n.array(value, depth)
	case ast.Object:
		return n.object(value, depth)
	case ast.Set:
		return nil, unfit("a set has no JSON form: write an array, [x | some x in …]")
	}
	return nil, unfit("%s has no JSON form", ast.ValueName(value))
}

func (n *native) array(array *ast.Array, depth int) ([]any, error) {
	list := make([]any, array.Len())
	for i := range list {
		element, err := n.value(array.Elem(i).Value, depth+1)
		if err != nil {
			return nil, under(fmt.Sprintf("[%d]", i), err)
		}
		list[i] = element
	}
	return list, nil
}

func (n *native) object(object ast.Object, depth int) (map[string]any, error) {
	fields := make(map[string]any, object.Len())
	// In the order of the keys, so that the same fault is reported each time.
	keys := object.KeysIterator()
	for key, more := keys.Next(); more; key, more = keys.Next() {
		name, ok := key.Value.(ast.String)
		if !ok {
			return nil, unfit("the key %s is no string", key)
		}
		value, err := n.value(object.Get(key).Value, depth+1)
		if err != nil {
			return nil, under("."+string(name), err)
		}
		fields[string(name)] = value
	}
	return fields, nil
}

// nativeNumber returns an int64 where the number is integral, else a float64. It
// rounds away the noise of arithmetic on fractions, and never a whole number.
func nativeNumber(text string) (any, error) {
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
		return whole, nil
	}
	float, err := finite(text)
	if err != nil {
		return nil, unfit("%v", err)
	}
	if float != math.Trunc(float) {
		return float, nil
	}
	if math.Abs(float) < 1<<53 {
		return int64(float), nil
	}
	if exact, ok := new(big.Rat).SetString(text); ok && exact.IsInt() && exact.Num().IsInt64() {
		return exact.Num().Int64(), nil
	}
	return nil, unfit("the number %s does not fit in 64 bits", text)
}
