// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"

	"github.com/open-policy-agent/opa/v1/storage"
)

// nothing is a store without data: what policies see as data are their own rules
// and the libraries. Having no state, it needs no locks and no transactions.
type nothing struct {
	storage.WritesNotSupported
	storage.PolicyNotSupported
	storage.TriggersNotSupported
}

// always is the one transaction.
type always struct{}

func (always) ID() uint64 { return 0 }

var errNoData = &storage.Error{Code: storage.NotFoundErr, Message: "there is no data"}

func (nothing) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return always{}, nil
}

func (nothing) Read(context.Context, storage.Transaction, storage.Path) (any, error) {
	return nil, errNoData
}

func (nothing) Commit(context.Context, storage.Transaction) error { return nil }

func (nothing) Abort(context.Context, storage.Transaction) {}

func (nothing) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return errors.New("there is nothing to truncate")
}

// ListPolicies returns none: OPA asks while it prepares a query.
func (nothing) ListPolicies(context.Context, storage.Transaction) ([]string, error) {
	return nil, nil
}
