package message

// SettingsKept is the bound of a Service's cache of settings.
const SettingsKept = settingsKept

// CachedSettings returns how many queues' settings s remembers.
func (s *Service) CachedSettings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.settings)
}
