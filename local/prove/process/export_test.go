package process

// PID is the process ID of this life.
func (s *Server) PID() int { return s.life.cmd.Process.Pid }
