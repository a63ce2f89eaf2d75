package checkpoint

// ListSandbox is List for one sandbox. A sandbox without checkpoints has an empty list.
func (s *Store) ListSandbox(containerID string) ([]Record, []Unreadable) {
	return s.listSandbox(containerID)
}
