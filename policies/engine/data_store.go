// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"

	"sluice.dev/policies/engine/dependency"
	"sluice.dev/policies/engine/document"
)

// dataStore is the store of all policies. It has no state: a transaction has the data of one
// evaluation. So prepared queries outlive the data, and nothing is locked.
type dataStore struct {
	storage.WritesNotSupported
	storage.PolicyNotSupported
	storage.TriggersNotSupported
}

var _ storage.Store = dataStore{}

// dataTransaction is the data that one policy reads in one evaluation. The zero value is that of a
// policy that reads none.
type dataTransaction struct {
	data      *Data
	namespace string
}

// ID implements storage.Transaction.
func (dataTransaction) ID() uint64 { return 0 }

var errNoData = &storage.Error{Code: storage.NotFoundErr, Message: "there is no data"}

// NewTransaction implements storage.Store. OPA calls it when it prepares a query.
func (dataStore) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return dataTransaction{}, nil
}

// Read implements storage.Store.
func (dataStore) Read(_ context.Context, transaction storage.Transaction, path storage.Path) (any, error) {
	t, ok := transaction.(dataTransaction)
	if !ok || t.data == nil || len(path) == 0 {
		return nil, errNoData
	}
	var term *ast.Term
	var rest storage.Path
	switch path[0] {
	case dependency.ConfigData:
		term, rest = t.config(path[1:])
	case dependency.ObjectData:
		term, rest = t.objects(path[1:])
	}
	for _, step := range rest {
		if term == nil {
			break
		}
		term = elementAt(term, step)
	}
	if term == nil {
		return nil, errNoData
	}
	return term.Value, nil
}

// Commit implements storage.Store.
func (dataStore) Commit(context.Context, storage.Transaction) error { return nil }

// Abort implements storage.Store.
func (dataStore) Abort(context.Context, storage.Transaction) {}

// Truncate implements storage.Store.
func (dataStore) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return errors.New("the data of policies cannot be truncated")
}

// ListPolicies returns none. OPA calls it when it prepares a query.
func (dataStore) ListPolicies(context.Context, storage.Transaction) ([]string, error) {
	return nil, nil
}

// elementAt returns an element of an object or array; nil if there is none.
func elementAt(term *ast.Term, step string) *ast.Term {
	switch value := term.Value.(type) {
	case ast.Object:
		return value.Get(document.KeyTerm(step))
	case *ast.Array:
		index, err := strconv.Atoi(step)
		if err != nil || index < 0 || index >= value.Len() || strconv.Itoa(index) != step {
			return nil
		}
		return value.Elem(index)
	}
	return nil
}

// config returns the value at the beginning of a path below data.config, and the rest of the path.
func (t dataTransaction) config(path storage.Path) (*ast.Term, storage.Path) {
	if len(path) > 0 {
		config, ok := t.data.configOf(path[0])
		if !ok {
			return nil, nil
		}
		return config.Values.Term(), path[1:]
	}
	all := ast.NewObject()
	for _, name := range t.data.configNames() {
		if config, _ := t.data.configOf(name); config.Unavailable == "" {
			all.Insert(document.KeyTerm(name), config.Values.Term())
		}
	}
	return ast.NewTerm(all), nil
}

// objects returns the value at the beginning of a path below data.objects, and the rest of the path.
func (t dataTransaction) objects(path storage.Path) (*ast.Term, storage.Path) {
	if len(path) == 0 {
		all := ast.NewObject()
		for _, name := range t.data.kindNames() {
			term, _ := t.kind(t.data.kindOf(name), nil)
			all.Insert(document.KeyTerm(name), term)
		}
		return ast.NewTerm(all), nil
	}
	kind := t.data.kindOf(path[0])
	if kind == nil {
		return nil, nil
	}
	return t.kind(kind, path[1:])
}

// kind returns the value at the beginning of a path below a kind. Only a kind without namespaces has
// its objects there; others have their namespaces.
func (t dataTransaction) kind(kind *ObjectKind, path storage.Path) (*ast.Term, storage.Path) {
	if kind.Scope == ScopeCluster {
		return kind.group("").asTerm(), path
	}
	if len(path) > 0 {
		if kind.Scope == ScopeNamespace && path[0] != t.namespace {
			return nil, nil
		}
		if kind.Groups[path[0]] == nil && path[0] != t.namespace {
			return nil, nil
		}
		return kind.group(path[0]).asTerm(), path[1:]
	}
	all := ast.NewObject()
	for namespace, group := range kind.Groups {
		if kind.Scope == ScopeAllNamespaces && namespace != t.namespace {
			all.Insert(document.KeyTerm(namespace), group.asTerm())
		}
	}
	all.Insert(document.KeyTerm(t.namespace), kind.group(t.namespace).asTerm())
	return ast.NewTerm(all), nil
}
