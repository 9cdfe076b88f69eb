// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sluice.dev/gpuagent/nvml"
)

const (
	snapshotVersion  = 1
	maxSnapshotBytes = 4 << 20 // bytes
)

// snapshotFile is a snapshot on disk.
type snapshotFile struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"` // of the node's JSON without white space
	Node    json.RawMessage `json:"node"`
}

// Snapshot returns the node's state as JSON: layouts, modes, processes and lost GPUs. It outlives
// the simulating program, as a real layout outlives the agent. It omits hooks, faults and denied
// permissions.
func (n *Node) Snapshot() ([]byte, error) {
	n.mu.Lock()
	image := n.state()
	n.mu.Unlock()
	node, err := json.Marshal(image)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return json.MarshalIndent(snapshotFile{snapshotVersion, checksum(node), node}, "", "  ")
}

// Restore sets the node's state to the snapshot of a node with the same GPUs. After an error, which
// says what is wrong with the snapshot, the node is unchanged. Programs that use the driver are not
// notified.
func (n *Node) Restore(snapshot []byte) error {
	image, err := parseSnapshot(snapshot)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return n.tryUpdate(func() error {
		gpus, err := n.restoreGPUs(image)
		if err == nil {
			err = validateGPUs(gpus)
		}
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		n.gpus, n.createdDevices = gpus, image.CreatedDevices
		return nil
	})
}

func parseSnapshot(snapshot []byte) (*nodeState, error) {
	if len(snapshot) > maxSnapshotBytes {
		return nil, fmt.Errorf("the snapshot has %d bytes; the limit is %d", len(snapshot), maxSnapshotBytes)
	}
	var s snapshotFile
	if err := decodeStrict(snapshot, &s); err != nil {
		return nil, fmt.Errorf("parse snapshot: %w", err)
	}
	if s.Version != snapshotVersion {
		return nil, fmt.Errorf("the snapshot has version %d; want version %d", s.Version, snapshotVersion)
	}
	var node bytes.Buffer
	if err := json.Compact(&node, s.Node); err != nil {
		return nil, fmt.Errorf("the snapshot lacks the node: %w", err)
	}
	if got := checksum(node.Bytes()); got != s.SHA256 {
		return nil, fmt.Errorf("the snapshot is damaged: its checksum is %s, want %q", got, s.SHA256)
	}
	var image nodeState
	if err := decodeStrict(node.Bytes(), &image); err != nil {
		return nil, fmt.Errorf("parse the snapshot's node: %w", err)
	}
	return &image, nil
}

func checksum(of []byte) string {
	sum := sha256.Sum256(of)
	return hex.EncodeToString(sum[:])
}

// decodeStrict decodes exactly one value without unknown fields.
func decodeStrict(from []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(from))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data follows")
	}
	return nil
}

// nodeState is a node in a snapshot.
type nodeState struct {
	CreatedDevices uint64     `json:"createdDevices"`
	GPUs           []gpuState `json:"gpus"`
}

type gpuState struct {
	UUID       string          `json:"uuid"`
	Name       string          `json:"name"`
	Index      int             `json:"index"`
	Mode       nvml.Mode       `json:"mode,omitempty"`
	Pending    nvml.Mode       `json:"pending,omitempty"`
	Held       bool            `json:"held,omitempty"`
	NeedsReset bool            `json:"needsReset,omitempty"`
	Lost       bool            `json:"lost,omitempty"`
	Vanished   bool            `json:"vanished,omitempty"`
	Instances  []instanceState `json:"instances,omitempty"`
	Processes  []processState  `json:"processes,omitempty"`
}

type instanceState struct {
	ID      uint32                `json:"id"`
	Profile uint32                `json:"profile"`
	Start   int                   `json:"start"`
	Compute *computeInstanceState `json:"compute,omitempty"`
}

type computeInstanceState struct {
	ID        uint32         `json:"id"`
	UUID      string         `json:"uuid"`
	Slices    int            `json:"slices,omitempty"` // if they differ from the profile's
	Processes []processState `json:"processes,omitempty"`
}

type processState struct {
	PID       uint32 `json:"pid"`
	MemoryMiB int64  `json:"memoryMiB"`
	SM        int    `json:"sm"`
}

func (n *Node) state() *nodeState {
	image := &nodeState{CreatedDevices: n.createdDevices}
	for _, g := range n.gpus {
		it := gpuState{
			UUID: g.uuid, Name: g.name, Index: g.index, Mode: g.mode, Pending: g.pending,
			Held: g.held, NeedsReset: g.needsReset, Lost: g.lost, Vanished: g.vanished, Processes: toProcessStates(g.processes),
		}
		for _, i := range g.instances {
			shown := instanceState{ID: i.id, Profile: i.profile.ID, Start: i.start}
			if i.computeInstance != nil {
				shown.Compute = &computeInstanceState{
					ID: i.computeInstance.id, UUID: i.computeInstance.uuid,
					Processes: toProcessStates(i.computeInstance.processes),
				}
				if i.computeInstance.slices != i.profile.Compute {
					shown.Compute.Slices = i.computeInstance.slices
				}
			}
			it.Instances = append(it.Instances, shown)
		}
		image.GPUs = append(image.GPUs, it)
	}
	return image
}

func toProcessStates(processes []process) []processState {
	var images []processState
	for _, p := range processes {
		images = append(images, processState{p.pid, p.memoryMiB, p.sm})
	}
	return images
}

// restoreGPUs returns the node's GPUs in the state of a snapshot.
func (n *Node) restoreGPUs(image *nodeState) ([]*gpu, error) {
	if len(image.GPUs) != len(n.gpus) {
		return nil, fmt.Errorf("the snapshot has %d GPUs and the node %d", len(image.GPUs), len(n.gpus))
	}
	var gpus []*gpu
	for k := range image.GPUs {
		g, err := n.gpus[k].restoreState(&image.GPUs[k])
		if err != nil {
			return nil, fmt.Errorf("gpus[%d]: %w", k, err)
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}

func (g *gpu) restoreState(image *gpuState) (*gpu, error) {
	if image.UUID != g.uuid || image.Name != g.name {
		return nil, fmt.Errorf("the snapshot belongs to another node: it has the %s %q in place of the %s %s", image.Name, image.UUID,
			g.name, g.uuid)
	}
	r := *g
	r.index, r.mode, r.pending = image.Index, image.Mode, image.Pending
	r.held, r.needsReset, r.lost, r.vanished = image.Held, image.NeedsReset, image.Lost, image.Vanished
	r.instances, r.processes = nil, fromProcessStates(image.Processes)
	if len(image.Instances) > 0 && g.migModel == nil {
		return nil, fmt.Errorf("instances on an %s, which does not support MIG", g.name)
	}
	for _, it := range image.Instances {
		i := &instance{id: it.ID, profile: g.profileByNVMLID(it.Profile), start: it.Start}
		if i.profile == nil {
			return nil, fmt.Errorf("instance %d: %s has no profile %d", it.ID, g.migModel.Name, it.Profile)
		}
		if it.Compute != nil {
			i.computeInstance = &computeInstance{
				it.Compute.ID, it.Compute.UUID, cmp.Or(it.Compute.Slices, i.profile.Compute),
				fromProcessStates(it.Compute.Processes),
			}
		}
		r.instances = append(r.instances, i)
	}
	return &r, nil
}

func fromProcessStates(images []processState) []process {
	var processes []process
	for _, p := range images {
		processes = append(processes, process{p.PID, p.MemoryMiB, p.SM})
	}
	return processes
}
