// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const version = 1

// envelope keeps the bytes of the content for the checksum.
type envelope struct {
	Checksum string          `json:"checksum"`
	Content  json.RawMessage `json:"content"`
}

type content struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	Pods    []Pod  `json:"pods"`
}

// Encode returns a node's checkpoint, with a checksum.
func Encode(node string, s State) ([]byte, error) {
	inner, err := json.Marshal(content{Version: version, Node: node, Pods: s.Pods()})
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return encodeEnvelope(inner), nil
}

// encodeEnvelope avoids json.Marshal, which could change the bytes of the content.
func encodeEnvelope(inner []byte) []byte {
	return fmt.Appendf(nil, `{"checksum":%q,"content":%s}`, checksum(inner), inner)
}

// Decode returns the pods in a checkpoint of this node. It rejects a checkpoint that was
// damaged or changed, that belongs to another node, or that assigns one device to two
// running pods.
func Decode(node string, raw []byte) ([]Pod, error) {
	var outer envelope
	if err := decodeStrict(raw, &outer); err != nil {
		return nil, err
	}
	if sum := checksum(outer.Content); sum != outer.Checksum {
		return nil, fmt.Errorf("the checksum is %q, that of the content is %q", outer.Checksum, sum)
	}
	var inner content
	if err := decodeStrict(outer.Content, &inner); err != nil {
		return nil, err
	}
	if inner.Version != version {
		return nil, fmt.Errorf("the version is %d, supported is %d", inner.Version, version)
	}
	if inner.Node != node {
		return nil, fmt.Errorf("the checkpoint belongs to node %q, not to %q", inner.Node, node)
	}
	return inner.Pods, validate(inner.Pods)
}

func validate(pods []Pod) error {
	holder, known := map[string]string{}, map[string]bool{}
	for _, pod := range pods {
		if pod.UID == "" || pod.Namespace == "" || pod.Name == "" || known[pod.UID] {
			return fmt.Errorf("pod %s/%s has no unique UID (%q)", pod.Namespace, pod.Name, pod.UID)
		}
		known[pod.UID] = true
		if pod.ExitDelay < 0 {
			return fmt.Errorf("pod %s has a negative exit delay", pod.UID)
		}
		if !pod.Running() {
			continue
		}
		for _, id := range pod.Devices() {
			if other, exists := holder[id]; exists {
				return fmt.Errorf("device %s is held by pod %s and by pod %s", id, other, pod.UID)
			}
			holder[id] = pod.UID
		}
	}
	return nil
}

func checksum(inner []byte) string {
	sum := sha256.Sum256(inner)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func decodeStrict(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("trailing data after the object")
	}
	return nil
}
