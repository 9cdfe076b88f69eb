// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	snapshotVersion = 1
	snapshotLongest = 4 << 20 // bytes
)

// sealed is a snapshot on disk.
type sealed struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"` // of the node, without white space
	Node    json.RawMessage `json:"node"`
}

// Snapshot is the node's state as JSON: layouts, modes, processes, what is lost. It
// outlives the program that simulates, as a real layout outlives the agent; hooks,
// faults, and denied permissions are not in it.
func (n *Node) Snapshot() ([]byte, error) {
	n.mu.Lock()
	image := n.image()
	n.mu.Unlock()
	node, err := json.Marshal(image)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return json.MarshalIndent(sealed{snapshotVersion, sum(node), node}, "", "  ")
}

// Restore gives the node the state of a snapshot of a node with the same GPUs. The
// error says what is wrong with the snapshot; the node is as before then. Programs
// that use the driver are not told.
func (n *Node) Restore(snapshot []byte) error {
	image, err := unseal(snapshot)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return n.happen(func() error {
		gpus, err := n.restored(image)
		if err == nil {
			err = check(gpus)
		}
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		n.gpus, n.minted = gpus, image.Minted
		return nil
	})
}

func unseal(snapshot []byte) (*nodeImage, error) {
	if len(snapshot) > snapshotLongest {
		return nil, fmt.Errorf("the snapshot has %d bytes; at most %d are read", len(snapshot), snapshotLongest)
	}
	var s sealed
	if err := strict(snapshot, &s); err != nil {
		return nil, fmt.Errorf("the snapshot is not one: %w", err)
	}
	if s.Version != snapshotVersion {
		return nil, fmt.Errorf("the snapshot is of version %d; this is version %d", s.Version, snapshotVersion)
	}
	var node bytes.Buffer
	if err := json.Compact(&node, s.Node); err != nil {
		return nil, fmt.Errorf("the snapshot has no node: %w", err)
	}
	if got := sum(node.Bytes()); got != s.SHA256 {
		return nil, fmt.Errorf("the snapshot is damaged: its checksum is %s and should be %q", got, s.SHA256)
	}
	var image nodeImage
	if err := strict(node.Bytes(), &image); err != nil {
		return nil, fmt.Errorf("the snapshot's node is not one: %w", err)
	}
	return &image, nil
}

func sum(of []byte) string {
	sum := sha256.Sum256(of)
	return hex.EncodeToString(sum[:])
}

// strict decodes exactly one value that has no fields but those asked for.
func strict(from []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(from))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}
