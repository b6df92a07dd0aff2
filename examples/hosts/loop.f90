! A time loop in Fortran. Prints the last field, 16 hexadecimal digits of its bits a cell.
!
!     include=$(python -c "import randsmap; print(randsmap.get_include())")
!     gfortran $include/randsmap.f90 loop.f90 $(randsmap config --libs) -o loop && ./loop decoder.rsm
program loop
  use, intrinsic :: iso_c_binding
  use randsmap
  implicit none
  type(c_ptr) :: decoder
  type(randsmap_info_t) :: info
  real(c_double), allocatable :: z(:), field(:), work(:)
  character(4096) :: path
  integer :: step, i

  call get_command_argument(1, path)
  call check(randsmap_open(path, decoder))
  call check(randsmap_info(decoder, info))
  allocate (z(info%n_components), field(info%n_cells), work(randsmap_work(decoder, 1_c_intptr_t)))
  z = 0.25d0
  do step = 1, 256
    z = z + 1d0/1024 ! the reduced model's step
    call check(randsmap_decode(decoder, z, 1_c_intptr_t, field, work))
  end do
  do i = 1, size(field)
    print '(z16.16)', transfer(field(i), 0_c_int64_t)
  end do
  call randsmap_close(decoder)

contains

  subroutine check(status)
    integer(c_int), intent(in) :: status
    if (status == randsmap_ok) return
    print '(a)', randsmap_strerror(status)
    stop 1
  end subroutine
end program
