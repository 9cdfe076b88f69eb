// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"encoding/json"
)

// WithValidChecksum returns a snapshot with the checksum of its state.
func WithValidChecksum(snapshot []byte) string {
	var s snapshotFile
	var node bytes.Buffer
	if json.Unmarshal(snapshot, &s) != nil || json.Compact(&node, s.Node) != nil {
		return string(snapshot)
	}
	s.Node, s.SHA256 = node.Bytes(), checksum(node.Bytes())
	out, err := json.Marshal(s)
	if err != nil {
		return string(snapshot)
	}
	return string(out)
}
