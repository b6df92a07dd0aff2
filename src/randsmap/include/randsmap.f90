! randsmap: decoded fields in a simulation loop, for Fortran 2003 and later.
!
! The functions are those of randsmap.h, where they are described; compile this file with your own and link
! librandsmap (`randsmap config --libs`). Arrays of one point or field a row in C are stored with the components of a
! point, or the cells of a field, running fastest: z(d, n), field(M, n), Jv(M, p).
module randsmap
  use, intrinsic :: iso_c_binding
  implicit none

  integer(c_int), parameter :: randsmap_ok = 0, randsmap_error_argument = 1, randsmap_error_memory = 2, &
    randsmap_error_file = 3, randsmap_error_image = 4, randsmap_error_version = 5, randsmap_error_byte_order = 6, &
    randsmap_error_not_finite = 7, randsmap_error_overflow = 8, randsmap_error_convergence = 9, &
    randsmap_error_values = 10, randsmap_error_unsupported = 11

  type, bind(c) :: randsmap_info_t
    integer(c_size_t) :: size = 7 * 8 ! of this structure: set by the caller
    integer(c_int64_t) :: n_components, n_cells, n_invariants, n_features, kind, precision
  end type

  interface
    integer(c_int) function randsmap_abi() bind(c)
      import
    end function
    integer(c_int) function randsmap_view(image, size, decoder) bind(c)
      import
      type(c_ptr), value :: image
      integer(c_size_t), value :: size
      type(c_ptr), intent(out) :: decoder
    end function
    subroutine randsmap_close(decoder) bind(c)
      import
      type(c_ptr), value :: decoder
    end subroutine
    integer(c_int) function randsmap_info(decoder, info) bind(c)
      import
      type(c_ptr), value :: decoder
      type(randsmap_info_t), intent(inout) :: info
    end function
    integer(c_intptr_t) function randsmap_work(decoder, n) bind(c)
      import
      type(c_ptr), value :: decoder
      integer(c_intptr_t), value :: n
    end function
    integer(c_int) function randsmap_decode(decoder, z, n, field, work) bind(c)
      import
      type(c_ptr), value :: decoder
      integer(c_intptr_t), value :: n
      real(c_double), intent(in) :: z(*)
      real(c_double), intent(out) :: field(*)
      real(c_double), intent(inout) :: work(*)
    end function
    integer(c_int) function randsmap_decode_values(decoder, z, m, n, field, work) bind(c)
      import
      type(c_ptr), value :: decoder
      integer(c_intptr_t), value :: n
      real(c_double), intent(in) :: z(*), m(*)
      real(c_double), intent(out) :: field(*)
      real(c_double), intent(inout) :: work(*)
    end function
    integer(c_int) function randsmap_encode(decoder, f, n, z, work) bind(c)
      import
      type(c_ptr), value :: decoder
      integer(c_intptr_t), value :: n
      real(c_double), intent(in) :: f(*)
      real(c_double), intent(out) :: z(*)
      real(c_double), intent(inout) :: work(*)
    end function
    integer(c_int) function randsmap_encode_steps(decoder, f, n, steps, z, work) bind(c)
      import
      type(c_ptr), value :: decoder
      integer(c_intptr_t), value :: n, steps
      real(c_double), intent(in) :: f(*)
      real(c_double), intent(out) :: z(*)
      real(c_double), intent(inout) :: work(*)
    end function
    integer(c_int) function randsmap_decode_jvp(decoder, z, v, p, f, Jv, work) bind(c)
      import
      type(c_ptr), value :: decoder
      integer(c_intptr_t), value :: p
      real(c_double), intent(in) :: z(*), v(*)
      real(c_double), intent(out) :: f(*), Jv(*)
      real(c_double), intent(inout) :: work(*)
    end function
    integer(c_int) function randsmap_vjp(decoder, z, u, gradient, work) bind(c, name="randsmap_vjp")
      import
      type(c_ptr), value :: decoder
      real(c_double), intent(in) :: z(*), u(*)
      real(c_double), intent(out) :: gradient(*)
      real(c_double), intent(inout) :: work(*)
    end function
    integer(c_int) function randsmap_error(decoder, z, fields, n, coverage, absolute, errors) &
        bind(c, name="randsmap_error")
      import
      type(c_ptr), value :: decoder
      real(c_double), intent(in) :: z(*), fields(*)
      integer(c_intptr_t), value :: n
      real(c_double), value :: coverage
      integer(c_int), value :: absolute
      real(c_double), intent(out) :: errors(*)
    end function
  end interface

contains

  ! The decoder of a file; its name needs no terminating null.
  integer(c_int) function randsmap_open(path, decoder) result(status)
    character(*), intent(in) :: path
    type(c_ptr), intent(out) :: decoder
    interface ! here, not in the module: gfortran warns of private names that are bound
      integer(c_int) function c_open(path, decoder) bind(c, name="randsmap_open")
        import
        character(kind=c_char), intent(in) :: path(*)
        type(c_ptr), intent(out) :: decoder
      end function
    end interface
    status = c_open(trim(path) // c_null_char, decoder)
  end function

  ! What a status means.
  function randsmap_strerror(status) result(text)
    integer(c_int), intent(in) :: status
    character(:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    type(c_ptr) :: message
    integer :: i
    interface
      type(c_ptr) function c_strerror(status) bind(c, name="randsmap_strerror")
        import
        integer(c_int), value :: status
      end function
      integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
        import
        type(c_ptr), value :: text
      end function
    end interface
    message = c_strerror(status)
    call c_f_pointer(message, letters, [c_strlen(message)])
    allocate(character(size(letters)) :: text)
    do i = 1, size(letters)
      text(i:i) = letters(i)
    end do
  end function
end module
