// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"sync"

	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/recent"
)

// How many requests are kept as policies read them, and how many bytes of them.
// Pods that are all different mostly ask for one of a few things.
const (
	maxDescribed      = 256
	maxDescribedBytes = 1 << 20
)

// described keeps requests as policies read them. The zero value is ready to use.
type described struct {
	once sync.Once
	kept *recent.Memory[string, engine.Document]
}

// of is a request as policies read it.
func (d *described) of(request *workload.Request) (engine.Document, error) {
	d.once.Do(func() { d.kept = recent.New[string, engine.Document](maxDescribed, maxDescribedBytes) })
	raw, err := json.Marshal(request)
	if err != nil {
		return engine.Document{}, fmt.Errorf("describing what the pod asks for: %w", err)
	}
	if known, ok := d.kept.Get(string(raw)); ok {
		return known, nil
	}
	document, err := engine.Decode(raw)
	if err != nil {
		return engine.Document{}, fmt.Errorf("describing what the pod asks for: %w", err)
	}
	// The values and what policies see of them take several times the text.
	d.kept.Put(string(raw), document, 8*len(raw))
	return document, nil
}
